"""Python calls of tools, and Gemma's objects: `tokens` and `arguments` read literals, `calls` a block of calls.

Dialects use `calls`, and `marked` where the calls are between two markers.
"""
