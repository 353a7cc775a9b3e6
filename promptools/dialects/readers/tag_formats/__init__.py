"""Formats of tags as data: templates of what a family writes, and the heads that follow from them."""
