"""Pages and figures of a run: one self-contained file, readable without a network. Only this room draws."""
