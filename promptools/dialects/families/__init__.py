"""One file for each family of models: its markers, its heads, and how it differs from the reader that it uses.

Most are tables, which `promptools.dialects.table` reads. What a table cannot express is code in a module: some families
have a table and a class derived from that of the kind, others only a module. Nothing outside these files knows the
family.
"""
