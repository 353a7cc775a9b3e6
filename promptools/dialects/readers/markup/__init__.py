"""Calls as tags, `call(name) / parameter(key) value / end`: the reader of all formats that are tags around tags.

`markup_block` and `markup_reader` have the states of a block, `open_value` decides where a value ends, `markup_call`
builds a call, and `block_parts` turns the block into parts.
"""
