"""JSON text, strict or broken, to a value and the fixes that it took. Nothing here knows of tools or dialects."""
