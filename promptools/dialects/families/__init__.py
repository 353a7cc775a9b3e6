"""Define the dialect of each family of models in a TOML table, a module, or both.

`promptools.dialects.table` reads the tables. A module has the code for what a table cannot express: either a subclass
of the class for this kind of table, or the whole dialect. Code that is specific to one family belongs here; only
Harmony, the format of gpt-oss, has a package of code in addition.
"""
