"""The first of many markers that matches is the same one, whether all have one pattern yet or not."""

from __future__ import annotations

from promptools.parsing.scanner import LONG_PATTERN, OFTEN, FirstMarker, Marker

MARKERS = tuple(Marker(f"m{number}", (), rf"<[a-z]{{{number},}}(?:\Z|>)") for number in range(59, 0, -1))


def test_it_is_the_same_however_often_they_are_matched() -> None:
    first = FirstMarker(MARKERS)
    assert sum(len(marker.expression) for marker in MARKERS) > LONG_PATTERN
    for _ in range(OFTEN + 2):
        match = first.match("x<abc>", 1)
        assert match is not None
        assert (match.lastgroup, match[0]) == ("m3", "<abc>")
        assert first.match("x<abc>", 0) is None
