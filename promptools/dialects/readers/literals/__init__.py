"""Literals in calls that are code: Python's, and Gemma's objects."""
