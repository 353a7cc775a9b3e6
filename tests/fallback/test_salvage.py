"""The model's words inside error texts."""

import pytest

from promptools.fallback import ModelText, find_model_text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            "error parsing tool call: raw='{\"city\": Paris}', err=invalid character 'P' looking for a value",
            ModelText("arguments", '{"city": Paris}'),
        ),
        # the arguments may quote anything, the tail's own marker too: the last one ends them
        ('error parsing tool call: raw=\'{"a": "\', err=x"}]\', err=', ModelText("arguments", '{"a": "\', err=x"}]')),
        ("error parsing tool call: raw='', err=unexpected end of JSON input", ModelText("arguments", "")),
        ('error parsing tool call: raw=\'{"city": "Par', None),
        ("x', err=error parsing tool call: raw='{}", None),
        (
            "Failed to parse input at pos 395: <|tool_call_start|>[f(a='x')]<|tool_call_end|>",
            ModelText("reply", "<|tool_call_start|>[f(a='x')]<|tool_call_end|>"),
        ),
        ("Failed to parse input at pos 3: ", None),
        ("The model produced output that does not match the expected peg-native format", None),
    ],
)
def test_words_are_found_whole_or_not_at_all(text, found):
    assert find_model_text(text) == found
