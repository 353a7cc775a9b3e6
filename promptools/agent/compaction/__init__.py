"""Make a conversation shorter that does not fit into the context."""
