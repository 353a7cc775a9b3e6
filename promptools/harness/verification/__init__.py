"""Whether tool calls work with a server: the same scenarios, asked directly and through promptools.

A case is a generator that yields requests and judges the answers; it does no I/O. One judge grades all answers, as an
OpenAI client receives them, whichever way they came.
"""
