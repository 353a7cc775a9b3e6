"""Config files: promptools.toml, and the JSON of ppxai."""
