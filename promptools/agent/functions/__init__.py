"""Functions as tools: how each is called, and what it may learn of the run."""
