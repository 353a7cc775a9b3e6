"""What any mode writes from a client's request: tools, choice, options, history, and text that must stay text."""
