"""JSON between markers, the shape of most dialects: `wrapped` reads it; `marked` and `named` define such dialects."""
