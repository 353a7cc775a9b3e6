"""What a call is in any dialect, and how it is sent while it is being written.

`envelope` reads JSON as raw calls, `resolve` decides about one by the tools, `json_body` and `bare_values` are where
its arguments come from. `argument_stream` decides which part of them can no longer change, `call_streamer` keeps what
was sent.
"""
