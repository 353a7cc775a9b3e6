"""Real models on a real llama.cpp: a set of questions, asked in several ways, and the page that comes of it."""
