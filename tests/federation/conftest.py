"""Some files here belong to Flower's environment, and are run in it by `test_flower`."""

collect_ignore = ["flower_replays.py", "flower_watch"]
