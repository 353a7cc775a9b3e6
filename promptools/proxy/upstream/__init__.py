"""The connection to the servers: their URLs, the HTTP client, and masks over the keys in their errors."""
