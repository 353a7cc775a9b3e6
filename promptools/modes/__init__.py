"""How a request asks for tools, and how the reply is read back: one module a mode."""
