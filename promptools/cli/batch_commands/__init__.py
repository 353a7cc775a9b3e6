"""Commands that work through whole files of requests or replies."""
