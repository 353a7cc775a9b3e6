"""Ollama's own API, `/api/chat`: to a server (request, reply) and from a client (front, answer)."""
