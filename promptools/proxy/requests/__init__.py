"""One request of a client: its body, where it goes, its tasks, and the relay of the response."""
