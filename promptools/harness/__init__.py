"""What is built on the library: agents and their tools, sandboxes, benchmarks, discovery of tools, verification.

Nothing outside of it, but for the command line, imports from here.
"""
