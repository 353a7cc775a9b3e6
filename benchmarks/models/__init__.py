"""Real models on a real llama.cpp server: a set of questions, asked in several ways, and the page of results."""
