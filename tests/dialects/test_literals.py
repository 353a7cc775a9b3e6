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
def test_a_pattern_begins_with_a_literal(head):
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.from_regex(re.compile(head.pattern)))
    def begins(text):
        found = re.match(head.pattern, text)
        if found is not None:
            said = found[0]
            assert said.startswith(head.literals) or any(each.startswith(said) for each in head.literals)

    begins()
