"""Python calls of tools, and Gemma's objects: `tokens` and `arguments` read literals, `calls` a block of calls.

What dialects take is `calls`, and `marked` where the calls stand between two markers.
"""
