"""The loop: a generator without I/O, and the two drivers that carry out its steps."""
