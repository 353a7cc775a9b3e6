"""How the arguments of a call are streamed while they are being written.

`argument_stream` decides what of their JSON can no longer change. `call_streamer` keeps what was sent of a call in
text, whose arguments are JSON (`argument_streamer`) or come one by one (`member_streamer`).
"""
