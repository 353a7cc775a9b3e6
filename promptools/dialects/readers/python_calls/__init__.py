"""Python calls of tools: `python_reader` reads a block of them, `marked_python` one between two markers."""
