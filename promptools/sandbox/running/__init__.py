"""How commands run on this machine: their environment, time, output, and what they use."""
