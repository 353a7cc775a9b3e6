"""Define the dialect of each family of models in a TOML table, a module, or both.

`promptools.dialects.table` reads the tables. A module has the code for what a table cannot express. It defines either a
subclass of the class for this kind of table, such as `MarkedJson`, or the whole dialect. Code that is specific to one
family belongs in this package. Only Harmony, the format of gpt-oss, also has a package of its own
(`promptools.harmony`).
"""
