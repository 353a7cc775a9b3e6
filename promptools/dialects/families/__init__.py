"""One file for each family of models: its markers, its heads, and what is unlike the reader that it uses.

Most are tables, which `promptools.dialects.table` reads; what a table cannot express is a class in a module. Nothing
outside a file here knows the family.
"""
