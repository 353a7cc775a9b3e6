"""A sweep through a text finds what a search at each place finds, and does not look for the same thing twice."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptools.parsing.scanner import ForwardSearch, Marker, MarkerScanner, RareLiteralMarker

RARE = RareLiteralMarker(
    "rare", ("speaker", "to="), re.compile(r"(?P<rare>speaker(?=end)|(?: end)?to=\w)"), 8, 16, {"s", " "}
)
SCANNER = MarkerScanner([Marker("tag", ("<tag>", "<end>")), Marker("mark", ("{{",))], [RARE])
texts = st.lists(st.sampled_from(["<tag>", "<end>", "{{", "{", "<", "speaker", "end", "to=", " ", "x"]), max_size=20)


@given(texts.map("".join), st.lists(st.integers(0, 60), max_size=8))
def test_it_finds_what_a_search_finds(text, places):
    sweep = ForwardSearch(SCANNER, text)
    for at in [*sorted(places), *places]:
        ours, theirs = sweep.search(text, at), SCANNER.search(text, at)
        assert (ours and (ours.span(), ours.lastgroup)) == (theirs and (theirs.span(), theirs.lastgroup))


@pytest.mark.parametrize("unit", ["to=a ", "speakerend ", "{{ "])
def test_nothing_is_looked_for_twice(unit):
    looked = []

    class Counted(str):
        def find(self, word, at, stop):
            looked.append((word, at))
            return super().find(word, at, stop)

    text = Counted(unit * 100)
    sweep = ForwardSearch(SCANNER, text)
    at = 0
    while (found := sweep.search(text, at)) is not None:
        at = found.start() + 1
    missing = [each for each in looked if each[0] not in unit]
    assert len(missing) == len({word for word, _ in missing})
