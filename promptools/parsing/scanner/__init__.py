r"""Find the next marker in text that arrives in chunks, and how much of the end of the text to hold back.

There are hundreds of markers, most of the text is prose, and `re` has no efficient search for many literals. So a
search has two steps. A *gate*, one regular expression over the first sixteen characters of every marker, runs over
prose at C speed. Where it matches, the full patterns of the markers that begin with these characters are tried, once.
Which those are is remembered by the characters.

Markers that begin with common letters, or with the end of a line, would stop the gate too often. They are searched for
by themselves: by a rarer literal inside them (`RareLiteralMarker`), by a few first letters (`LetterMarkers`), or at the
beginning of a line (`LineStartMarkers`). Of two matches the leftmost wins, of two at one offset the earlier in the
list.

When the text ends, its longest suffix that is a proper prefix of a marker's literal is held back until more text
arrives (`MarkerScanner.hold_from`). A marker with a pattern matches at the end of the text by `\Z`, and its caller
decides.

All searches are O(n). What would break that, a model caught in a loop that repeats the same near miss, is skipped
by comparison with the text of the last miss (`lookahead_text`); text in which many markers are found that begin
nothing is searched with a `ForwardSearch`.
"""

from promptools.parsing.scanner.forward_search import ForwardSearch
from promptools.parsing.scanner.literals import LiteralSet
from promptools.parsing.scanner.marker import Marker, markers_by_group
from promptools.parsing.scanner.marker_scanner import MarkerScanner
from promptools.parsing.scanner.rare_markers import LetterMarkers, LineStartMarkers, RareLiteralMarker, RareMarkers

__all__ = [
    "ForwardSearch",
    "LetterMarkers",
    "LineStartMarkers",
    "LiteralSet",
    "Marker",
    "MarkerScanner",
    "RareLiteralMarker",
    "RareMarkers",
    "markers_by_group",
]
