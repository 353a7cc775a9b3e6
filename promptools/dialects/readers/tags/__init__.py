"""Text that is read as tags and the text between them: what all readers of tags share.

`tag_names` reads one tag and `tag_tokenizer` finds them; `single_call_reader` and `field_call` read one call of fields.
"""
