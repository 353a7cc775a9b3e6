"""The connection to the servers: their URLs, duplex connections, and masks over the keys in their errors."""
