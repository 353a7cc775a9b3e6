"""Test how well tool calls work with a server: run the same cases on the server alone and through promptools.

A case is a generator that yields requests and grades the answers; it does no I/O. Answers from the server alone and
answers through promptools are graded by the same rules, in the form in which an OpenAI client receives them.
"""
