"""One file for each family of models: its markers, its heads, and what is unlike the reader that it uses.

Most are tables, which `promptools.dialects.table` reads. What a table cannot express is code in a module: for some
families beside their table, as a class derived from the kind's, for some in place of one. Nothing outside a file here
knows the family.
"""
