"""Ollama's own API, `/api/chat`: encoded requests and decoded responses of a server, and the reverse for a client."""
