"""Commands that ask a server or are one: detect it, chat with it, run the proxy, hold the demo's conversation."""
