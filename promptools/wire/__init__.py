"""The JSON and event-stream shapes of the APIs: read whatever servers send, write exactly what clients expect.

Each wire reads into the same `Delta`s, so that modes and exchanges never know which API a server speaks.
"""
