"""The modes: how a request asks for tools, and how its reply is read back into events and judged."""
