"""Calls as markup, `call(name) / parameter(key) value`: the reader of the XML families.

`tags` finds the tags, `block` and its states split the text at them, `collected` makes a call of the pieces, `written`
writes one; `reader` is what a dialect uses. In `nested` parameters are elements inside elements.
"""
