"""One file for each family of models: its markers, its heads, and how it differs from the reader that it uses.

Most families are declared in tables, which `promptools.dialects.table` reads. What a table cannot express is code in a
module. Some families have a table and a class derived from the class of its kind; others have only a module. Nothing
outside these files knows about a family.
"""
