"""Reading what a model said: events, scanner, JSON strict and tolerant, and the engine that drives them."""
