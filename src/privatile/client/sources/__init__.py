"""Where records come from: files, tables in memory, databases; always as batches in a fixed order."""

from privatile.client.sources.databases import open_source
from privatile.client.sources.source import Batch, Source

__all__ = ["Batch", "Source", "open_source"]
