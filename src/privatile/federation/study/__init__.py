"""The study file: what is asked, of whom, at what privacy budget. Its digest is what all parties agree on."""

__all__ = ["rules", "study"]
