"""Which replies are used, and what follows from one that is not."""
