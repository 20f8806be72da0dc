"""Ways to carry a round between coordinator and clients."""
