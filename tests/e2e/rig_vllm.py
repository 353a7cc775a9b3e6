"""A real vLLM in five ways: with and without the flags that let it take tools, on a model with Hermes tags and on
gpt-oss, and the last release that raises HarmonyError. What each model says, beside the words of the table.
"""

from __future__ import annotations

import json
import os
import re
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import environments
import httpx
import pytest
import repairs
import scenes
from families import template
from recipes.recipe import CannotMakeError
from recipes.vllm import OLD_VERSION, VERSION
from rig.probing import FORCED_CALL, FORCED_FORMAT, probe_lines
from rig.vllm import VllmInstallation, VllmServer, serve
from scenes import FENCED_CALL, HARMONY_CALL, HERMES_CALL, THOUGHT

from promptools.lab.script import ScriptedReply
from promptools.lab.server_process import Server

Family = Literal["hermes", "harmony", "coder"]

FINAL = "<|channel|>final<|message|>"
TALK = "The wind is strong – take a coat. 🧥"
SPELLED = f"A call is written so: <|start|>assistant{HARMONY_CALL} 🧥"
"""What an answer may tell of Harmony."""
BAD_HEADER = "No header at all."
NO_START = "<|channel|>analysis<|message|>Hm.<|end|>assistant<|channel|>final<|message|>x<|return|>"
LONG_CITY = "Paris, on the Seine, below the bridge of the "
LONG_CALL = HERMES_CALL.replace("Paris", f"{LONG_CITY}END")
QUOTED_TAG = "The tag `<tool_call>` begins a call. What follows is JSON with a name and arguments, and then its end."
OUT = '{"city": "Par\x01is"}'
TURN = "<|im_start|>assistant\n"
BEGUN = ('<tool_call>\n{"name": "', '<tool_call>\n{"name": "get_weather", "arguments":')
AT_ONCE = 8
"""So many requests it answers side by side."""


def fenced_long(end: str) -> str:
    return FENCED_CALL.replace("Paris", LONG_CITY + end)


def hermes(prompted: str) -> list[ScriptedReply]:
    """Lines of the model with Hermes tags, for the tests of vLLM alone."""
    return [
        *scenes.hermes(prompted),
        # after the beginning of a required call, in raw mode
        *(ScriptedReply(scenes.QUESTION, HERMES_CALL.removeprefix(head), setting=TURN + head) for head in BEGUN),
        # an argument without quotes
        ScriptedReply("Broken in Paris?", HERMES_CALL.replace('"Paris"', "Paris")),
        ScriptedReply("Broken in Paris?", FENCED_CALL, setting=prompted),
        # an argument whose string is never closed
        ScriptedReply("Unclosed in Paris?", HERMES_CALL.replace('Paris"}}', "Par")),
        ScriptedReply("Unclosed in Paris?", FENCED_CALL, setting=prompted),
        ScriptedReply("Closer in Paris?", HERMES_CALL.replace("Paris", "Paris </tool_call>")),
        ScriptedReply("Closer in Paris?", FENCED_CALL.replace("Paris", "Paris </tool_call>"), setting=prompted),
        # what a grammar of the envelope alone lets through
        ScriptedReply("Odd in Paris?", HERMES_CALL.replace('{"city": "Paris"}', '["Paris"]')),
        ScriptedReply("Odd in Paris?", FENCED_CALL, setting=prompted),
        ScriptedReply("Bare in Paris?", '{"city": "Paris"}'),
        ScriptedReply("Control in Paris?", OUT),
        ScriptedReply("Say little", TALK),
        # strings that go on after a tag of calls, or never end
        ScriptedReply("Long closer in Paris?", LONG_CALL.replace("END", "</tool_call> ends a call")),
        ScriptedReply("Long closer in Paris?", fenced_long("</tool_call> ends a call"), setting=prompted),
        ScriptedReply("Long end in Paris?", LONG_CALL.partition("END")[0]),
        ScriptedReply("Long end in Paris?", fenced_long("ends"), setting=prompted),
        ScriptedReply("Long call in Paris?", LONG_CALL.replace("END", "ends")),
        ScriptedReply("What is the tag?", QUOTED_TAG),
        # a draft in a thought, and a call that ends one
        ScriptedReply("Draft in Paris?", f"<think>\nI could call it: {HERMES_CALL}, or not.\n</think>\n\n{TALK}"),
        ScriptedReply("Draft only in Paris?", f"<think>\nI could call it: {HERMES_CALL}, or not."),
        ScriptedReply("Draft only in Paris?", TALK, setting=prompted),
        ScriptedReply("Thought into a call in Paris?", f"<think>\nNeed the tool.\n{HERMES_CALL}"),
        ScriptedReply("Think in Paris?", f"<think>\nNeed the tool.\n</think>\n\n{HERMES_CALL}"),
        *repairs.hermes(),
    ]


def gpt_oss(prompted: str) -> list[ScriptedReply]:
    """Lines of gpt-oss, for the tests of vLLM alone."""
    broken = HARMONY_CALL.replace('"Paris"', "Paris")
    prompt = f"{THOUGHT}{FINAL}{FENCED_CALL}<|return|>"
    return [
        *scenes.gpt_oss(prompted),
        ScriptedReply("Broken in Paris?", THOUGHT + broken),
        ScriptedReply("Broken in Paris?", prompt, setting=prompted),
        # no <|start|> after <|end|>: HarmonyError in vLLM before 0.32
        ScriptedReply("No start in Paris?", NO_START),
        ScriptedReply("No start in Paris?", prompt, setting=prompted),
        ScriptedReply("No start at all in Paris?", NO_START),
        # words without a header, and the end
        ScriptedReply("Header in Paris?", f"{BAD_HEADER}<|return|>"),
        ScriptedReply("Header in Paris?", prompt, setting=prompted),
        # a header that is never finished
        ScriptedReply(
            "Half a header in Paris?", f"{THOUGHT} to=functions.get_weather<|channel|>commentary json<|return|>"
        ),
        ScriptedReply("Half a header in Paris?", prompt, setting=prompted),
        ScriptedReply("No prefix in Paris?", THOUGHT + HARMONY_CALL.replace("functions.", "")),
        ScriptedReply("Say little", f"{FINAL}{TALK}<|return|>"),
        # markers spelled out in tokens of ordinary text
        ScriptedReply("Spell it out", f"{FINAL}{spelled(SPELLED)}<|return|>"),
        ScriptedReply("Spell in Paris?", spelled_call(spelled("Need <|end|>."), spelled("Paris <|call|>"))),
        *repairs.gpt_oss(repairs.SHARED),
    ]


def spelled(text: str) -> str:
    """Have the model say markers in tokens of ordinary text."""
    return text.replace("<|", "<\0|")


def spelled_call(thought: str, city: str) -> str:
    return THOUGHT.replace("Need the tool.", thought) + HARMONY_CALL.replace("Paris", city)


@dataclass(frozen=True, slots=True)
class Boot:
    """One way to run vLLM."""

    family: Family
    tools: bool = True
    """Whether it has the flags."""
    version: str = VERSION
    raw_alone: bool = False
    """Whether the rows are played in raw mode alone."""

    @property
    def title(self) -> str:
        models = {"harmony": "gpt-oss", "hermes": "a template with Hermes tags", "coder": "Qwen3-Coder"}
        model = models[self.family]
        return f"vLLM {self.version}, {model}, {'with' if self.tools else 'without'} the flags for tools"

    @property
    def mode(self) -> str:
        """The mode that answers where nothing goes wrong."""
        if self.family == "harmony" and (not self.tools or self.version == OLD_VERSION):
            return "harmony"
        return "native" if self.tools else "raw"

    def more(self, prompted: str) -> list[ScriptedReply]:
        own = {"harmony": gpt_oss, "hermes": hermes}.get(self.family)
        forced = FORCED_FORMAT | (FORCED_CALL if self.tools else {})
        return [*probe_lines(self.family, "json", forced=forced), *(own(prompted) if own else ())]

    def start(self, lines: list[ScriptedReply], name: str, folder: Path, **keys: Any) -> VllmServer:
        """Start it; where vLLM cannot be installed, the test is skipped or fails."""
        return serve(
            lines,
            installed=self.installed(),
            template=self.family,
            chat_template=template("qwen3_coder") if self.family == "coder" else None,
            tools=self.tools,
            name=name,
            folder=folder,
            report=_told_by_boots.append,
            **{"slots": AT_ONCE} | keys,
        )

    def installed(self) -> VllmInstallation:
        try:
            return VllmInstallation(
                environments.path_of("vllm"),
                self.version,
                None if self.version == VERSION else environments.path_of(f"vllm-{self.version}"),
                environments.path_of("o200k") if self.family == "harmony" else None,
            )
        except CannotMakeError as error:
            if os.environ.get("PROMPTOOLS_E2E") == "required":
                pytest.fail(f"vLLM cannot be installed, and PROMPTOOLS_E2E asks for it: {error}")
            pytest.skip(f"vLLM cannot be installed: {error}")


BOOTS = {
    "vllm-hermes": Boot("hermes"),
    "vllm-hermes-bare": Boot("hermes", tools=False),
    "vllm-harmony": Boot("harmony"),
    "vllm-harmony-bare": Boot("harmony", tools=False),
    "vllm-harmony-old": Boot("harmony", version=OLD_VERSION),
    "vllm-coder": Boot("coder", raw_alone=True),
    "vllm-hermes-old": Boot("hermes", version=OLD_VERSION, raw_alone=True),
}


class Progress:
    """What goes on with servers that boot in the background, shown among the dots."""

    def __init__(self, config: pytest.Config) -> None:
        self._capture: Any = config.pluginmanager.getplugin("capturemanager")

    def show(self) -> None:
        """Print what was told since; to be called where a test waits."""
        while _told_by_boots:
            with self._capture.global_and_fixture_disabled():
                print(f"\n{_told_by_boots.popleft()}", end="", flush=True)


_told_by_boots: deque[str] = deque()


_OWN = ("test_vllm_faults", "test_vllm_learned", "test_vllm_offline")
"""Tests that have a vLLM to themselves."""
_NAMED = re.compile(rf"(?:{'|'.join((*sorted(BOOTS, key=len, reverse=True), *_OWN))})\b")


def server_of(test: str) -> str | None:
    """Return the vLLM that a test asks, or the test file that has its own: a test's id holds the name.

    Without a server each test starts an engine: then it is the test itself.
    """
    found = _NAMED.search(test)
    return None if found is None else test if found[0] == "test_vllm_offline" else found[0]


def shared() -> bool:
    """Return whether this is one of several processes that share the tests."""
    return "PYTEST_XDIST_WORKER" in os.environ


def wanted(items: Iterable[pytest.Item]) -> list[str]:
    """Return the servers that tests will ask for, in this order; none where several processes share the tests."""
    if shared():
        return []
    names = dict.fromkeys(server_of(item.nodeid) for item in items)
    return [name for name in names if name in BOOTS]


def post(http: httpx.Client, server: Server, *messages: str | dict[str, Any], **keys: Any) -> httpx.Response:
    """Ask the server itself."""
    said = [{"role": "user", "content": message} if isinstance(message, str) else message for message in messages]
    return http.post(f"{server.base_url}/chat/completions", json={"model": server.name, "messages": said, **keys})


def complete(http: httpx.Client, server: Server, prompt: str, **keys: Any) -> httpx.Response:
    """Ask the server's raw completions."""
    return http.post(f"{server.base_url}/completions", json={"model": server.name, "prompt": prompt, **keys})


def choice(reply: httpx.Response) -> dict[str, Any]:
    """Return the one choice of a whole answer, without what vLLM always leaves empty."""
    assert reply.status_code == 200, reply.text
    (one,) = reply.json()["choices"]
    return _told(one) | {"message": _told(one["message"]) | {"content": one["message"]["content"]}}


def events(reply: httpx.Response) -> list[Any]:
    """Return the events of a streamed answer, `[DONE]` as it is."""
    assert reply.status_code == 200, reply.text
    lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: ")]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def deltas(told: list[Any]) -> list[dict[str, Any]]:
    """Return what the chunks of a stream say."""
    chunks = [each for each in told if each != "[DONE]" and each.get("choices")]
    return [chunk["choices"][0]["delta"] for chunk in chunks]


def ends(told: list[Any]) -> list[tuple[str, Any]]:
    """Give finish and stop reasons of a stream; one pair where all is well."""
    chunks = [each for each in told if each != "[DONE]" and each.get("choices")]
    choices = [chunk["choices"][0] for chunk in chunks]
    return [(each["finish_reason"], each.get("stop_reason")) for each in choices if each["finish_reason"]]


def error(reply: httpx.Response) -> tuple[int, str, Any]:
    """Return an error's status, its message and its type."""
    told = reply.json()["error"]
    assert told["code"] == reply.status_code
    return reply.status_code, told["message"], told["type"]


def _told(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}
