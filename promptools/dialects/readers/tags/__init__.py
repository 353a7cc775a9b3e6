"""Text that is read as tags and the text between them: what all readers of tags share.

`tag_names` reads one tag, `tag_tokenizer` and `pattern_tokenizer` split text into tokens, `token_buffer` keeps them and
looks ahead, and `tag_reader` takes them one by one and makes the parts. `single_call_reader` and `field_call` are what
readers of one call of fields have in common.
"""
