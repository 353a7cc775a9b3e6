"""Record a run, and replay or resume it."""
