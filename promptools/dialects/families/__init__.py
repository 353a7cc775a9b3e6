"""One module for each family of models: its markers, its heads, and what is unlike the reader that it uses.

Nothing outside a module here knows the family; families that are a table are in `declared`.
"""
