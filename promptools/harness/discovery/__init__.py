"""Discover which tools a model was trained on.

The model gets tasks for an agent, but no definitions of tools. Its calls show which tools it knows. These tools are
counted and compared, and the model is asked to describe them.
"""
