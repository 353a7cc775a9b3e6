"""Parts built on the library: agents and their tools, sandboxes, benchmarks, discovery of tools, verification.

No other package imports from this one, except the command line.
"""
