"""Recipes for `environments.py`; servers that need more than a pip install have a module of their own."""
