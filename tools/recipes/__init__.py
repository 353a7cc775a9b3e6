"""What the environments of `environments.py` are made of; servers that need more than a pip install have a module."""
