"""JSON Schema documents: read in any draft, normalized, walked along `$ref`. Nothing here knows of calls."""
