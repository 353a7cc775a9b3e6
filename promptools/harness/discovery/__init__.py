"""Discover which tools a model was trained on.

The model is asked without definitions of tools. The tools that it calls are counted and compared, and the model
describes them.
"""
