"""The processes of the proxy's benchmark: the server, the load, and the proxy that ours is compared with."""
