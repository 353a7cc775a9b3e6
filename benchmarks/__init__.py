"""What promptools costs, side by side with other libraries: `make bench`; docs/benchmarks.md tells how it measures."""
