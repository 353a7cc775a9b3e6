"""The benchmarks of `promptools eval`: one module each, and what they share."""
