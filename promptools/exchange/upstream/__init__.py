"""The server's side of an exchange: the request to it, its reply as deltas, its failures, and the kind of server."""
