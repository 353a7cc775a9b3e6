"""Tokens that begin with a letter are found, and the search for all other markers does not stop at each such letter."""

from __future__ import annotations

from promptools import dialects
from promptools.engine.scan_plan import default_plan


def test_a_token_that_begins_with_a_letter_is_searched_for_by_itself() -> None:
    every = (token for name in dialects.names() for token in dialects.get(name).control_tokens)
    tokens = [token for token in every if token[0].isalpha()]
    assert "user<|role_sep|>" in tokens
    for scanner in default_plan(None).scanners_for(None).full:
        for token in tokens:
            assert scanner.match(token, 0) is None, token  # where the gate stops
            found = scanner.search(f"Ask the {token}", 0)
            assert found is not None, token
            assert (found[0], found.start()) == (token, len("Ask the ")), token
