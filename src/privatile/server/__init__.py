"""Server side: the coordinator and its store."""
