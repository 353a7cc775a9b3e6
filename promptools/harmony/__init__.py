"""Harmony, the format of gpt-oss: written and read without a tokenizer."""
