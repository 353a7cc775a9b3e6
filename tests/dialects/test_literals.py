"""A head's pattern begins with its literals: they are what is looked for, and what else it matches is never found."""

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from promptools import dialects

HEADS = [
    pytest.param(head, id=f"{name}_{number}")
    for name in dialects.names()
    for number, head in enumerate(dialects.get(name).heads)
    if head.literals and not head.gate
]


@pytest.mark.parametrize("head", HEADS)
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_pattern_begins_with_a_literal(head, data):
    match = re.match(head.pattern, data.draw(st.from_regex(re.compile(head.pattern))))
    if match is not None:
        begun = match[0]
        assert begun.startswith(head.literals) or any(literal.startswith(begun) for literal in head.literals)
