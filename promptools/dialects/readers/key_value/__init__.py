"""Calls whose arguments are pairs of tags, a key and then its value."""
