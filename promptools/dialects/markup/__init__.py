"""Calls as markup, `call(name) / parameter(key) value`: the machine of the XML families.

`tags` finds the tags, `block` and its states cut the text at them, `collected` makes a call of the pieces, `written`
writes one; `reader` is what a dialect takes. In `nested` parameters are elements inside elements.
"""
