"""Muse Glimmer: declared tags, in a message to the tool.

<|start|>assistant to=weather.get_weather<|message|><atem:function_calls>
<atem:invoke name="weather.get_weather">
<atem:parameter name="city">Oslo</atem:parameter>
</atem:invoke>
</atem:function_calls><|eom|>
"""

from __future__ import annotations

from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.contract import Dialect, MessageFormat
from promptools.dialects.families.muse_messages import HEADER, MuseSplitter, header_begins
from promptools.dialects.table import read_family


def _make_splitter(rules: ParseOptions, inside: bool) -> MuseSplitter:
    del rules, inside  # they make no difference to where messages end
    return MuseSplitter()


CHANNELS = MessageFormat(
    markers=("<|start|>assistant to=",), stripped_header=HEADER, begins=header_begins, make_splitter=_make_splitter
)


def muse() -> Dialect:
    """Return the dialect."""
    dialect = read_family("muse")
    dialect.channels = CHANNELS
    return dialect
