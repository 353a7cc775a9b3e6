"""Parsing of replies: events, the marker scanner, strict and tolerant JSON, and the engine that drives them."""
