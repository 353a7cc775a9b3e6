"""What promptools costs, compared with other libraries: `make bench`; docs/benchmarks.md explains the method."""
