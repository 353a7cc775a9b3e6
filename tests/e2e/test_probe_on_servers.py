"""`promptools probe` on real servers: each verdict, the modes that it recommends, and calls by the config it writes.

The models answer the probe's questions as models of their families do, so that a verdict is about the server.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rig.ollama import MODELFILES
from rig.probing import check_written
from rigs import Servers

from promptools.cli import main
from promptools.lab.server_process import Server

ANY_OLLAMA = {
    "native tools": "works",
    "streamed call": "whole",
    "parallel calls": "works",
    "parallel_tool_calls": "ignored",
    "tool_choice none": "ignored",
    "tool_choice required": "ignored",
    "tool_choice named": "ignored",
    "tool results": "works",
    "system message": "works",
    "messages of one role in a row": "accepted",
    "tool names with a dot": "works",
    "response_format": "works",
    "response_format beside tools": "ignored",
    "n": "ignored",
    "stream_options.include_usage": "works",
    "reasoning_effort": "errors",
    "reasoning field": "not shown",
    "raw completions": "ignored",
    "mode native": "works",
    "mode raw": "works",
    "mode harmony": "absent",
    "mode prompt": "works",
    "special tokens in raw completions": "works",
    "context": "works",
}
THINKS = {"reasoning_effort": "accepted", "reasoning field": "works"}
UNSTEADY = ("streamed call", "response_format")
"""A busy vLLM may lose the arguments of a stream; a scripted model may write blanks for too long in a grammar."""


@dataclass(frozen=True)
class Probed:
    """What the probe must find on one rig."""

    verdicts: dict[str, str]
    modes: list[str]
    status: int = 0
    facts: dict[str, Any] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    """Parts of the reasons of some checks."""
    left_out: dict[str, str] = field(default_factory=dict)
    """The modes that failed, with a part of the reason."""


OLLAMA = {
    "ollama-go": Probed(ANY_OLLAMA, ["native", "raw", "prompt"]),
    "ollama-jinja": Probed(ANY_OLLAMA, ["native", "raw", "prompt"]),
    "ollama-gptoss": Probed(
        {
            **{name: verdict for name, verdict in ANY_OLLAMA.items() if name != "parallel_tool_calls"},
            **THINKS,
            "parallel calls": "not shown",  # the model ends its turn after one
            "response_format": "ignored",  # its parser and a grammar do not go together
            "response_format beside tools": "works",
            "mode raw": "absent",
            "mode harmony": "works",
        },
        ["harmony", "native", "prompt"],
    ),
    "ollama-coder": Probed(
        # a model that writes blank lines where the grammar lets it: Ollama gives up
        {**ANY_OLLAMA, "response_format": "errors"},
        ["raw", "native", "prompt"],
        reasons={"response_format": "ended without a finish_reason"},
    ),
    "ollama-think": Probed(
        # the grammar begins after the thoughts, of which the call is the end
        {**ANY_OLLAMA, **THINKS, "response_format beside tools": "works"},
        ["native", "raw", "prompt"],
    ),
    "ollama-notools": Probed(
        {
            **{name: verdict for name, verdict in ANY_OLLAMA.items() if name != "parallel_tool_calls"},
            **dict.fromkeys(("native tools", "streamed call", "parallel calls", "tool results"), "errors"),
            **{f"tool_choice {value}": "errors" for value in ("none", "required", "named")},
            **dict.fromkeys(("tool names with a dot", "response_format beside tools"), "not shown"),
            "mode native": "absent",
            "mode raw": "absent",
            "special tokens in raw completions": "not shown",
        },
        ["prompt"],
        status=1,
        reasons={"native tools": "does not support tools"},
    ),
}


ANY_VLLM = {
    **ANY_OLLAMA,
    "streamed call": "works",
    "parallel_tool_calls": "works",
    "tool_choice none": "works",
    "tool_choice required": "works",
    "tool_choice named": "works",
    "n": "works",
    "reasoning_effort": "accepted",
    "raw completions": "works",
}
GPT_OSS = {
    **{name: verdict for name, verdict in ANY_VLLM.items() if name != "parallel_tool_calls"},
    "parallel calls": "not shown",  # the model ends its turn after one
    "reasoning field": "works",
    "mode raw": "absent",
    "mode harmony": "works",
}
REFUSED = "requires --enable-auto-tool-choice and --tool-call-parser to be set"
VLLM = {
    "vllm-hermes": Probed(ANY_VLLM, ["native", "raw", "prompt"]),
    "vllm-hermes-bare": Probed(
        {
            **{name: verdict for name, verdict in ANY_VLLM.items() if name != "parallel_tool_calls"},
            **dict.fromkeys(("native tools", "streamed call", "parallel calls", "tool results"), "errors"),
            **dict.fromkeys(("tool_choice required", "tool_choice named", "mode native"), "errors"),
            **dict.fromkeys(("tool_choice none", "tool names with a dot"), "not shown"),
            "response_format beside tools": "not shown",
        },
        ["raw", "prompt"],
        status=1,
        facts={"modes": ["raw", "prompt"]},
        reasons={"native tools": REFUSED},
        left_out={"native": f'no_native_tools: "auto" tool choice {REFUSED}'},
    ),
    "vllm-harmony": Probed(GPT_OSS, ["native", "harmony", "prompt"]),
    "vllm-harmony-bare": Probed(
        {
            **GPT_OSS,
            **dict.fromkeys(("native tools", "streamed call", "parallel calls", "tool_choice named"), "swallows"),
            **dict.fromkeys(("tool_choice none", "response_format beside tools"), "not shown"),
            "tool_choice required": "ignored",
            "tool names with a dot": "accepted",
            "mode native": "errors",
        },
        ["harmony", "prompt"],
        status=1,
        facts={"modes": ["harmony", "prompt"], "tool_choice": ["auto", "none"]},
        reasons={"native tools": "no call and no text came"},
        left_out={"native": "swallowed: the model ended with a call"},
    ),
    "vllm-harmony-old": Probed(GPT_OSS, ["harmony", "native", "prompt"]),
}


def probe(capsys: pytest.CaptureFixture[str], server: Server, path: Path) -> tuple[int, dict[str, Any]]:
    arguments = ["--model", server.name, "--json", "--max-tokens", "128", "--write", str(path), "--name", "found"]
    status = main(["probe", server.url, *arguments])
    return status, json.loads(capsys.readouterr().out)


def check(capsys: pytest.CaptureFixture[str], server: Server, path: Path, expected: Probed) -> None:
    for _ in range(3):
        path.unlink(missing_ok=True)
        status, data = probe(capsys, server, path)
        verdicts = {finding["check"]: finding["verdict"] for finding in data["findings"]}
        if all(verdicts.get(name) == expected.verdicts.get(name) for name in UNSTEADY):
            break
    assert verdicts == expected.verdicts
    reasons = {finding["check"]: finding["reason"] for finding in data["findings"]}
    assert all(reasons.values())
    assert {name: part for name, part in expected.reasons.items() if part not in reasons[name]} == {}
    assert [entry["mode"] for entry in data["modes"]] == expected.modes
    left_out = {entry["mode"]: entry["why"] for entry in data["left_out"]}
    assert left_out.keys() == expected.left_out.keys()
    assert {mode: why for mode, why in left_out.items() if expected.left_out[mode] not in why} == {}
    assert (data["facts"], status) == (expected.facts, expected.status)
    check_written(path, "found", server.name, expected.modes[0])


def test_every_modelfile_is_probed() -> None:
    assert {f"ollama-{path.stem}" for path in MODELFILES.iterdir()} == OLLAMA.keys()


@pytest.mark.ollama
@pytest.mark.parametrize("rig", OLLAMA)
def test_on_ollama(capsys: pytest.CaptureFixture[str], servers: Servers, tmp_path: Path, rig: str) -> None:
    check(capsys, servers[rig], tmp_path / "promptools.toml", OLLAMA[rig])


@pytest.mark.vllm
@pytest.mark.parametrize("rig", VLLM)
def test_on_vllm(capsys: pytest.CaptureFixture[str], servers: Servers, tmp_path: Path, rig: str) -> None:
    check(capsys, servers[rig], tmp_path / "promptools.toml", VLLM[rig])
