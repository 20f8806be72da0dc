"""A federation without a coordinator: one process per organization, which answers and follows the log.

log_port   the log on the broker: publish until seen, read by a consumer
"""

__all__ = ["log_port"]
