"""The first word of a line goes out as soon as it is there, but for a last letter, unless it may begin a call."""

import pytest

from promptools import StreamParser

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {}}}}
    for name in ("get_weather", "write_file")
]
COMMON = [
    "The",
    "There",
    "This",
    "These",
    "They",
    "That",
    "Thank",
    "Then",
    "Today",
    "Tomorrow",
    "Two",
    "Certainly",
    "Can",
    "Could",
    "As",
    "An",
    "Also",
    "And",
    "After",
    "At",
    "For",
    "From",
    "First",
    "Based",
    "Here",
    "Hello",
    "I",
    "If",
    "It",
    "Let",
    "No",
    "Of",
    "Sorry",
    "Sure",
    "Unfortunately",
    "We",
    "What",
    "Yes",
    "You",
]


@pytest.mark.parametrize("word", COMMON)
@pytest.mark.parametrize("before", ["", "\n", "Done.\n"])
def test_a_common_word_is_not_held(word, before):  # its last letter may begin a marker, as in `to=functions`
    parser = StreamParser(TOOLS)
    events = [*parser.feed(before), *parser.feed(word)]
    assert "".join(event.text for event in events) in {before + word, before + word[:-1]}


@pytest.mark.parametrize("word", ["To", "Act", "Action", "Tool", "Fun", "get", "Get_w", "write_file"])
def test_the_beginning_of_a_label_or_a_name_is_held(word):
    assert StreamParser(TOOLS).feed(word) == []
