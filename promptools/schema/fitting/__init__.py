"""A model's text fitted to a tool: names spelled otherwise, keys, types, and the check by the schema."""
