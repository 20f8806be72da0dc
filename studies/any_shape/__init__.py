"""The study of the any-shape design."""
