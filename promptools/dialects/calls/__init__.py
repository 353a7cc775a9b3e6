"""Calls in any dialect: what counts as one, and how it is streamed while it is being written.

`envelope` reads JSON as raw calls, `resolve` judges a raw call by the tools, `json_body` and `bare_values` read its
arguments. `argument_stream` decides which part of them can no longer change, `call_streamer` records what was sent.
"""
