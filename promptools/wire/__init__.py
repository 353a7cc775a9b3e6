"""The JSON and event-stream formats of the APIs: decode whatever servers send, encode exactly what clients expect.

Replies of every API decode to the same `Delta`s, so that modes and exchanges need not know which API a server has.
"""
