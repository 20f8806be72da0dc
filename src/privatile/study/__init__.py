"""The laboratory: Monte Carlo studies of the method, compiled, and the paper's tables."""
