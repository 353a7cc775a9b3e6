"""Read JSON text, strict or broken: the value, and the fixes that were needed. Nothing here knows tools or dialects."""
