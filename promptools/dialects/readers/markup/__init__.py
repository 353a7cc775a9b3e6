"""Calls as markup, `call(name) / parameter(key) value`.

`tag_tokenizer` finds the tags, `markup_block` and its states split the text at them, `markup_call` makes a call of the
pieces; `markup_reader` is what a dialect uses.
"""
