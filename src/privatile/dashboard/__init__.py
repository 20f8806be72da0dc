"""The live page of a run: it reads the run's file and nothing else."""
