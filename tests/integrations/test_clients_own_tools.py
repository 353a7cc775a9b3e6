"""Tools that an API defines by their type, run by the real SDKs before the proxy: what they do is there on disk.

The models are scripted ones on a real llama.cpp, which reads none of their calls.
"""

import json
import runpy
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import models
import pytest
from programs import HERE, proxy_before, run_ways

from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply

GPT_OSS, OTHER = "gpt-oss-20b", "qwen3-coder"
FORMS = (False, True)
FRUIT = runpy.run_path(str(HERE / "own_tools" / "fruit.py"))
PATCHES, LOCAL, CUSTOM, EDITS = FRUIT["PATCHES"], FRUIT["LOCAL"], FRUIT["CUSTOM"], FRUIT["EDITS"]

pytestmark = pytest.mark.integrations


def told(says: Any, answer: Any, shell: tuple[str, Any], local: tuple[str, Any]) -> list[ScriptedReply]:
    """Return a script, whose calls and answers are written by `says` and `answer`."""
    asked, notes = FRUIT["QUESTIONS"], {"path": FRUIT["NOTES"]}
    create, file = {"command": "create"}, {"command": "create", "path": "/memories/fruit.md"}
    return [
        ScriptedReply(asked[PATCHES], says(*shell)),
        ScriptedReply(PATCHES, says("apply_patch", {"type": "create_file", **notes, "diff": "+A quince."})),
        ScriptedReply("Created notes.md", answer("It is noted.")),
        ScriptedReply(asked[LOCAL], says(*local)),
        ScriptedReply(LOCAL, answer("The local medlar.")),
        ScriptedReply(asked[CUSTOM], says("look_up", {"input": "fruit"})),
        ScriptedReply(CUSTOM, answer("A looked-up damson.")),
        ScriptedReply(asked[EDITS], says("bash", {"command": "cat fruit.txt"})),
        ScriptedReply(EDITS, says("str_replace_based_edit_tool", create | notes | {"file_text": "A rowan.\nYes."})),
        ScriptedReply("Wrote notes.md", says("memory", file | {"file_text": "Red berries."})),
        ScriptedReply("File created successfully", answer("It is kept.")),
    ]


def gpt_oss() -> list[ScriptedReply]:
    """Return the script of gpt-oss, with the junk in a header at which llama.cpp answers HTTP 500."""

    def says(name: str, arguments: dict[str, Any]) -> str:
        recipient = name if "." in name else f"functions.{name}"
        return f"<|channel|>commentary–– to={recipient} <|constrain|>json<|message|>{json.dumps(arguments)}<|call|>"

    exec_call = "container.exec", {"command": ["bash", "-lc", "cat fruit.txt"]}
    return told(says, lambda text: f"<|channel|>final<|message|>{text}<|return|>", exec_call, exec_call)


def other() -> list[ScriptedReply]:
    """Return the script of a model that calls in the format of another family: llama.cpp takes that for text."""

    def says(name: str, arguments: dict[str, Any]) -> str:
        values = ((key, value if isinstance(value, str) else json.dumps(value)) for key, value in arguments.items())
        parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values)
        return f"<function={name}>\n{parameters}</function>\n</tool_call>"

    shell, local = ("shell", {"commands": ["cat fruit.txt"]}), ("local_shell", {"command": ["cat", "fruit.txt"]})
    return told(says, lambda text: text, shell, local)


@pytest.fixture(scope="session")
def proxies() -> Iterator[list[str]]:
    """The addresses of proxies before both models, each with the model's name."""
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    with ExitStack() as stack:
        servers = (
            serve(gpt_oss(), template="harmony", name=GPT_OSS, context=16384, special=models.WORDS),
            serve(other(), template="hermes", name=OTHER, context=16384, special=models.WORDS),
        )
        bases = [stack.enter_context(server).base_url for server in servers]
        yield [
            f"{stack.enter_context(proxy_before(base))}={name}"
            for base, name in zip(bases, (GPT_OSS, OTHER), strict=True)
        ]


AGENTS = {
    "shell": ["It is noted.", "A quince."],
    "local": ["The local medlar.", None],
    "custom": ["A looked-up damson.", None],
}
ANTHROPIC = {"messages": ["It is kept.", "A rowan.\nYes.", "Red berries."]}


AI_SDK = {
    "shell": AGENTS["shell"],
    "local": AGENTS["local"],
    "messages": ANTHROPIC["messages"][:2],
}
PYTHON, NODE = ("Python", "frameworks-openai-3"), ("Node", "frameworks-node")


@pytest.mark.parametrize(
    ("program", "runtime", "expected"),
    [
        pytest.param(program, runtime, expected, id=program, marks=getattr(pytest.mark, runtime[1]))
        for program, runtime, expected in (
            ("agents_own_tools", PYTHON, AGENTS),
            ("anthropic_own_tools", PYTHON, ANTHROPIC),
            ("ai_sdk_own_tools", NODE, AI_SDK),
        )
    ],
)
def test_what_the_tools_did(
    program: str, runtime: tuple[str, str], expected: dict[str, Any], proxies: list[str], tmp_path: Path
) -> None:
    seen = {
        (row["api"], row["stream"], row["server"]): row.get("answer", row.get("error"))
        for row in run_ways(program, *runtime, proxies, tmp_path)
    }
    assert seen == {
        (way, stream, server): answer for way, answer in expected.items() for stream in FORMS for server in proxies
    }
