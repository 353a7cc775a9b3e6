"""Calls whose arguments are elements, `<city>Oslo</city>`, nested or flat, or lines of YAML."""
