"""Whether tool calls work with a server: the same scenarios asked of it directly and through promptools.

A case is a generator that yields requests and judges the answers; it does no I/O. What an answer is worth is decided by
one judge, from what an OpenAI client gets, whichever way it came.
"""
