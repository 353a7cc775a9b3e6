"""Find out by requests what a server and its model really do: checks, their findings, and what follows from them.

A check is a generator that yields requests and judges the answers; it does no I/O. `probe_runner` performs them over
HTTP. Here is what asks for tool calls to learn something. Detecting what software a server is, which generates nothing,
is in `promptools.exchange` and `promptools.profiles`.
"""
