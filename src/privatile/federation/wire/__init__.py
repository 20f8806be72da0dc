"""What crosses the wire and how; see `docs/wire.md`.

messages     the five kinds of message, signed and bounded
keys         one secret per party, signatures, fingerprints
subjects     the broker's subjects and streams
connection   one TLS connection to a broker
"""

__all__ = ["connection", "keys", "messages", "subjects"]
