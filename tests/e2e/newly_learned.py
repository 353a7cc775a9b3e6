"""Models that nobody knows, on real servers: each writes calls as its own chat template does, with invented markers."""

from __future__ import annotations

import json
from typing import Any

import asking
import pytest
from asking import FORMS, Got
from invented_templates import CALLS, invented_template

from promptools.client import OpenAI
from promptools.lab.script import ScriptedReply
from promptools.modes.jinja_template import jinja_renderer
from promptools.transport import session

QUESTION = "What is the weather in Paris?"
BEFORE = "Let me look. "
CALL = ("get_weather", {"city": "Paris", "days": 2})
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
ONE_OF_EACH_KIND = ("json: a list", "tags: an attribute", "key_value")
"""What `make test` starts a server for; `make test-all` has all."""
OTHERS = tuple(form for form in CALLS if form not in ONE_OF_EACH_KIND)


def written(form: str) -> str:
    """Return the call as the template writes it."""
    name, arguments = CALL
    call = {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}
    assistant = {"role": "assistant", "content": BEFORE, "tool_calls": [call]}
    render = jinja_renderer(invented_template(form), special_tokens={"bos_token": ""})
    prompt = render([{"role": "user", "content": "?"}, assistant, {"role": "user", "content": "!"}], None)
    return prompt.partition(BEFORE)[2].partition("<%%end%%>")[0]


def lines(form: str) -> list[ScriptedReply]:
    """Return what a model says whose template has a form of calls."""
    return [ScriptedReply(QUESTION, BEFORE + written(form))]


GUIDED = {"json: as the API has it, each in a wrapper"}
"""Forms for which llama.cpp itself forces a grammar in native mode that the template's own calls do not fit: what the
model can say there is no call of the template's."""


def ask_in_all_ways(client: OpenAI, model: str, form: str) -> dict[tuple[str, str], Got]:
    """Ask as it comes, which begins in native mode, and in raw mode, whole and streamed, with a trace."""
    asked: list[Any] = [{"role": "user", "content": QUESTION}]
    return {
        (mode, way): asking.ask(
            client,
            model,
            asked,
            way,
            tools=[WEATHER],
            extra_body={"promptools": {"trace": True, **({"mode": "raw"} if mode == "raw" else {})}},
        )
        for mode in (("raw",) if form in GUIDED else ("native", "raw"))
        for way in FORMS
    }


def told(got: Got) -> list[tuple[str, Any]]:
    return [(name, json.loads(arguments)) for name, arguments in got.calls]


def learn_anew(monkeypatch: pytest.MonkeyPatch, folder: Any) -> None:
    """Keep what is learned in a folder of the test, and give it all the time that a busy machine needs."""
    from promptools.exchange import learning

    monkeypatch.setattr(session, "learned_folder", lambda: folder)
    monkeypatch.setattr(learning, "LEARN_TIMEOUT", 120.0)
