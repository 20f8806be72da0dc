"""Client side: the privacy boundary."""
