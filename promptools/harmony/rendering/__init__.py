"""A conversation and its tools as Harmony text or token ids."""
