"""Batches without a server: the model runs in this process, in an engine that answers the client's requests.

`open_vllm` makes vLLM's server application on an engine of its own, `EngineTransport` passes requests to it without a
connection, and `open_engine` puts a client of promptools before it. So everything above the connection is the same as
with a server: modes, corrections, results and errors.
"""
