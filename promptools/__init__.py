"""Tool calls that work."""
