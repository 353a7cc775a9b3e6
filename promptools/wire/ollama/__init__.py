"""Ollama's own API, `/api/chat`: requests written for it out of Chat Completions, its replies read as deltas."""
