"""How `promptools serve` runs the proxy: the HTTP server with its drain, and the worker processes."""
