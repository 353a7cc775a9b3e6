"""Calls as JSON between markers, the form of most dialects.

`block_reader` reads it, `marked_json` and `named_marker_json` declare dialects of it.
"""
