"""Readers of tool calls that several model families share, and the kinds of dialects that use these readers.

JSON is read by `json_block` (between markers) and `bare_json`, Python by `python_reader`, tags by `markup_reader`,
`nested_reader`, `element_reader` and `pair_reader`, YAML by `yaml_reader`, and free text by `free_text`. The modules
`marked_json`, `marked_python`, `tag_dialect`, `nested_dialect`, `pair_dialect` and `brace_calls` define the kinds.
"""
