"""Verify whether tool calls work with a server: run the same scenarios on the server alone and through promptools.

A case is a generator that yields requests and judges the answers; it does no I/O. The same judge grades all answers, as
an OpenAI client receives them, whether they came from the server or through promptools.
"""
