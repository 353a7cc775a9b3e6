"""Requests, replies and results as columns of Arrow: what a file or a data frame may have, and what is made of it."""
