"""Calls in any dialect: what counts as a call, and how a call is streamed while it is being written.

`envelope` reads JSON as raw calls, `resolve` checks a raw call against the offered tools, and `json_body` and
`bare_values` read the arguments. `argument_stream` decides which part of the arguments can no longer change, and
`call_streamer` sends that part.
"""
