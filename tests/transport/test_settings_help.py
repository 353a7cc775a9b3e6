"""`help(OpenAI)`, and of Ollama's clients: the settings, from the docstrings that editors show."""

import inspect
import pydoc
import re

import httpx
import openai
import pytest

from promptools import AsyncOpenAI, OpenAI, ollama
from promptools.client import AsyncClientOptions, AsyncCopyOptions, ClientOptions, CopyOptions
from promptools.modes.options import OPTIONS, RequestOptions
from promptools.ollama.ollama_clients import ClientOptions as OllamaOptions
from promptools.transport.settings import SETTING_NAMES, SettingsHelp

TYPED = "3.57."
"""The release of openai whose arguments are typed."""


@pytest.mark.parametrize("kind", [OpenAI, AsyncOpenAI])
def test_help_lists_each_setting_with_its_meaning(kind):
    text = inspect.getdoc(kind)
    assert text.startswith(f"`openai.{kind.__name__}` whose chat completions return working tool calls")
    listed = re.findall(r"^    (\w+): .+\n        \S", text, re.MULTILINE)
    assert sorted(listed) == sorted(SETTING_NAMES)
    assert (
        "    hold: Hold\n        `all` holds a stream back until the reply is known to be good. One of 'auto', 'all'."
        in text
    )
    assert "    deadline: float | None\n        Seconds that all requests" in text
    assert "    deadline: float | None\n" in pydoc.plain(pydoc.render_doc(kind)).replace(" |      ", "    ")


@pytest.mark.parametrize("kind", [ollama.Client, ollama.AsyncClient])
def test_help_of_the_ollama_clients(kind):
    text = inspect.getdoc(kind)
    assert text.startswith(f"`ollama.{kind.__name__}` whose chats return working tool calls")
    assert sorted(re.findall(r"^    (\w+): .+\n        \S", text, re.MULTILINE)) == sorted(SETTING_NAMES)
    theirs = httpx.Client if kind is ollama.Client else httpx.AsyncClient
    taken = inspect.signature(theirs).parameters.keys() - {"base_url"}  # the package sets that one: it is its `host`
    assert OllamaOptions.__annotations__.keys() - SETTING_NAMES == taken


def test_without_docstrings_there_is_no_help():
    class Silent:
        __doc__ = SettingsHelp(None)

    assert Silent.__doc__ is None
    assert Silent().__doc__ is None


def test_without_its_source_the_help_is_what_the_class_says(monkeypatch):
    def no_source(kind):
        raise OSError("could not get source code")

    monkeypatch.setattr(inspect, "getsource", no_source)
    assert OpenAI.__doc__.rstrip().endswith("it is then passed on to the SDK.")


def test_the_typed_options_are_those_that_are_checked():
    assert set(RequestOptions.__annotations__) == set(OPTIONS) - {"provider"}


@pytest.mark.skipif(int(openai.__version__.partition(".")[0]) < 3, reason="the arguments are those of openai 3")
@pytest.mark.parametrize(
    ("method", "options"),
    [
        (openai.OpenAI.__init__, ClientOptions),
        (openai.OpenAI.copy, CopyOptions),
        (openai.AsyncOpenAI.__init__, AsyncClientOptions),
        (openai.AsyncOpenAI.copy, AsyncCopyOptions),
    ],
)
def test_all_that_the_sdk_takes_is_typed(method, options):
    theirs = {name for name in inspect.signature(method).parameters if not name.startswith("_")} - {"self"}
    ours = {*options.__annotations__} - (SETTING_NAMES - {"provider"})
    if openai.__version__.startswith(TYPED):
        assert ours == theirs
    else:  # what a later release adds still works, and is not typed yet
        assert ours <= theirs
