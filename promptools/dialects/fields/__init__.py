"""Calls whose arguments are separate fields of bare text: keys and values between tags, elements, or lines of YAML.

`tagged` takes the text piece by piece, `gathered` collects one call and types its values by the schema; `pairs` and
`elements` are the readers that dialects use, and `yaml_calls` is the one for YAML.
"""
