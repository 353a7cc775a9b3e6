import pytest

from promptools.modes.tool_names import MAX_NAME_LENGTH, harmony_names, legal_names, rename_tools
from promptools.schema import Tools

LEGAL = r"[a-zA-Z0-9_-]{1,64}"


def test_legal_names_are_left_alone():
    assert legal_names(["get_weather", "a-b"], LEGAL) == {}


@pytest.mark.parametrize(
    ("names", "sent"),
    [
        (["graph.list"], {"graph.list": "graph_list"}),
        (["github.com/cline/x y"], {"github.com/cline/x y": "github_com_cline_x_y"}),
        (["a.b", "a_b", "a/b"], {"a.b": "a_b_2", "a/b": "a_b_3"}),
        (["查天气", "城市"], {"查天气": "tool", "城市": "tool_2"}),
        (["x" * 70], {"x" * 70: "x" * MAX_NAME_LENGTH}),
        (["x" * 70 + "a", "x" * 70 + "b"], {"x" * 70 + "a": "x" * 64, "x" * 70 + "b": "x" * 56 + "_2"}),
        (["a.b", "a.b"], {"a.b": "a_b"}),
    ],
)
def test_others_get_one_of_their_own(names, sent):
    assert legal_names(names, LEGAL) == sent


def test_what_no_name_can_match_stays():
    assert legal_names(["a", "b"], "[0-9]+") == {}


def test_what_harmony_writes_otherwise():
    assert harmony_names(["ping", "container.exec", "my.tool/x", "my.tool_x", "get it"]) == {
        "my.tool/x": "my.tool_x_2",
        "get it": "get_it",
    }


def test_renamed_tools_keep_their_marks():
    tool = {"type": "function", "function": {"name": "a.b", "parameters": {"type": "object"}, "strict": True}}
    tools = Tools([tool], marks={"a.b": {"dangerous": True, "infer": False}})
    (found,) = rename_tools(tools, {"a.b": "a_b"})
    assert (found.name, found.dangerous, found.infer, found.strict) == ("a_b", True, False, True)
    assert rename_tools(tools, {}) is tools


def test_many_names_that_are_spelled_alike_are_numbered_in_turn():
    names = [f"工具{'。' * n}" for n in range(3000)]
    sent = legal_names(names, LEGAL)
    assert [sent[names[n]] for n in (0, 1, 2999)] == ["tool", "tool_2", "tool_3000"]
    assert len(set(sent.values())) == 3000
    assert legal_names([f"a.{n}" for n in range(3000)], "[0-9]+") == {}
    said = harmony_names(names)
    assert (said[names[0]], said[names[2999]]) == ("tool", "tool_3000")


def test_a_number_that_another_tool_bears_is_passed_over():
    assert legal_names(["a_b_2", "a.b", "a/b"], LEGAL) == {"a.b": "a_b", "a/b": "a_b_3"}
