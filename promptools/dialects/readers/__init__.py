"""Readers that several families share, one folder for each kind of body."""
