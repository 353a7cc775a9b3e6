"""Names of tools as recipients, and back."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptools.harmony.recipients import RecipientNames, clean_name
from promptools.harmony.renderer import Message, render_messages
from promptools.harmony.tool_declarations import FunctionDeclaration

IDENTIFIER = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")


@pytest.mark.parametrize(
    ("name", "recipient"),
    [
        ("get_weather", "functions.get_weather"),
        ("$x1", "functions.$x1"),
        ("container.exec", "container.exec"),
        ("browser.search", "browser.search"),
        ("functions.f", "functions.f"),
        ("get-weather", "functions.get_weather"),
        ("get weather?", "functions.get_weather"),
        ("mcp.files.read", "mcp.files_read"),
        ("my-box.run it", "my_box.run_it"),
        ("3d", "functions._3d"),
        ("söka", "functions.s_ka"),
        ("搜索", "functions.tool"),
        ("搜.索", "functions.tool"),
        ("box.索", "box.tool"),
        (".x", "functions.x"),
        ("x.", "x.tool"),
        ("", "functions.tool"),
        ("a<|end|>", "functions.a_end"),
        ("a to=b", "functions.a_to_b"),
    ],
)
def test_a_name(name, recipient):
    assert RecipientNames([name]).address_of(name).recipient == recipient


def test_two_tools_never_become_one():
    names = RecipientNames(["a-b", "a b", "a_b", "functions.a_b"])
    assert names.address_of("a_b").recipient == "functions.a_b"
    others = {names.address_of(name).recipient for name in ["a-b", "a b", "functions.a_b"]}
    assert others == {"functions.a_b_2", "functions.a_b_3", "functions.a_b_4"}


def test_what_a_history_holds_comes_after_what_is_offered():
    names = RecipientNames(
        ["get-weather"], ["get_weather", "get-weather", "functions.get-weather", "get-weather<|channel|>x"]
    )
    assert names.address_of("get-weather").recipient == "functions.get_weather"
    assert names.address_of("get_weather").recipient == "functions.get_weather_2"
    assert names.address_of("functions.get-weather") == names.address_of("get-weather")
    assert names.address_of("get-weather<|channel|>x") == names.address_of("get-weather")


@pytest.mark.parametrize(
    ("name", "tidied"),
    [
        ("f", "f"),
        (" f ", "f"),
        ("f<|channel|>commentary", "f"),
        ("<|constrain|>json", "json"),
        ("<|call|>", "__invalid_tool__"),
        ("", "__invalid_tool__"),
        ("f<|x", "f"),
        ("<|x", "<|x"),
    ],
)
def test_tidied(name, tidied):
    assert clean_name(name) == tidied


odd = st.text("ab_-. $1<|>é\n", max_size=6)


@settings(deadline=None)
@given(st.lists(odd, max_size=6, unique=True), st.lists(odd, max_size=4))
def test_every_name_has_a_place_of_its_own(offered, heard):
    names = RecipientNames(offered, heard)
    recipients = [names.address_of(name).recipient for name in offered]
    assert len(set(recipients)) == len(offered)
    for name in [*offered, *heard]:
        address = names.address_of(name)
        assert IDENTIFIER.fullmatch(address.namespace)
        assert IDENTIFIER.fullmatch(address.name)
        assert address.recipient in render_messages([Message("assistant", "", recipient=address.recipient)])
        assert FunctionDeclaration(address.name).name == address.name
    assert recipients == [RecipientNames(offered).address_of(name).recipient for name in offered]
