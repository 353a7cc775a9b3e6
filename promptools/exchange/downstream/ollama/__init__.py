"""The client's side of Ollama's API: its responses, and its routes before servers that lack them."""
