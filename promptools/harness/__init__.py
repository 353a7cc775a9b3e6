"""Features built on the core library: agents and their tools, sandboxes, benchmarks, discovery of tools, verification.

Of promptools' other packages, only the command line imports from this one.
"""
