"""`assert_calls` takes a reply in every form, and its failure shows what differs."""

import pytest
from openai.types.chat import ChatCompletion
from upstream import completion

from promptools import Call, UsageError, parse
from promptools.testing import assert_calls

PARIS = ("get_weather", {"city": "Paris", "days": 3})
BODY = completion(None, [("get_weather", '{"days": 3, "city": "Paris"}')])
CALL = Call("a", "get_weather", {"city": "Paris", "days": 3}, '{"city": "Paris", "days": 3}')
TEXT = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}</tool_call>'
SDK = ChatCompletion.model_validate(BODY)
FORMS = {
    "reply": parse(TEXT),
    "completion": SDK,
    "message": SDK.choices[0].message,
    "tool calls": SDK.choices[0].message.tool_calls,
    "json": BODY,
    "json message": BODY["choices"][0]["message"],
    "calls": [CALL],
    "pairs": (PARIS,),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form(form):
    assert_calls(FORMS[form], [PARIS])
    assert_calls(FORMS[form], [CALL])
    with pytest.raises(AssertionError):
        assert_calls(FORMS[form], [])


def test_the_difference_is_shown():
    with pytest.raises(AssertionError) as failure:
        assert_calls(BODY, [("get_weather", {"city": "Rome", "days": 3})])
    assert '-   "city": "Rome",\n+   "city": "Paris",' in str(failure.value)


def test_the_text_is_shown_where_no_call_came():
    with pytest.raises(AssertionError, match="I do not know"):
        assert_calls(completion("I do not know."), [PARIS])
    assert_calls(completion("I do not know."), [])


@pytest.mark.parametrize(
    "wanted",
    [[PARIS, PARIS], [("other", PARIS[1])], [("get_weather", {"city": "Paris"})], [("get_weather", "no JSON")]],
)
def test_other_calls_fail(wanted):
    with pytest.raises(AssertionError):
        assert_calls(BODY, wanted)


def test_arguments_that_are_not_json_are_compared_as_text():
    broken = completion(None, [("get_weather", '{"city":')])
    assert_calls(broken, [("get_weather", '{"city":')])
    with pytest.raises(AssertionError):
        assert_calls(broken, [("get_weather", {})])


@pytest.mark.parametrize("value", ["text", 7, None, [7], [{"no": "name"}]])
def test_what_is_not_a_reply(value):
    with pytest.raises(UsageError):
        assert_calls(value, [])
