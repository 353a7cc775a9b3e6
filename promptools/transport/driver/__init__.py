"""What performs an exchange's effects: it sends, waits and probes over HTTP, in threads or on an event loop."""
