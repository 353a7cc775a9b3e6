"""What is built on the library: agents and their tools, sandboxes for commands, benchmarks, and the discovery of tools.

Nothing outside of it, but for the command line, imports from here.
"""
