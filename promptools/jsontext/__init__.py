"""Read JSON text, strict or broken: return the value, and the fixes that were needed.

The modules are independent of tools and dialects.
"""
