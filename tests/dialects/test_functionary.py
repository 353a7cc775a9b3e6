"""The header of words for the user, by itself."""

from __future__ import annotations

from promptools.dialects.families.functionary import UserHeaderCandidate


def test_a_header_is_taken_whole() -> None:
    candidate = UserHeaderCandidate(definite=True)
    assert candidate.feed("x>>>all\nHello", 1) == 8
    assert [(part.kind, part.raw) for part in candidate.parts] == [("markup", ">>>all\n")]


def test_a_header_that_never_came_is_nothing() -> None:
    candidate = UserHeaderCandidate(definite=True)
    candidate.close("stop")
    assert candidate.parts == []
