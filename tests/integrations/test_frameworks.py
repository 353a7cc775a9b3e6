"""The examples of docs/tasks/frameworks.md, run by the real frameworks before a real llama.cpp.

The second word after a block's language names the environment that it runs in (tools/environments.py). What it prints
is the `output` block that follows, or the page's first. The answer is said only to who has called the tool, and the
server reads none of the calls: `test_alone` has it.
"""

import ast
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import environments
import models
import openai
import pytest
from coding_agents import PAGE, PROXY
from pages import ADDRESS, Block, blocks
from programs import ROOT, proxy_before, run

from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve

STREAMED = Path(__file__).with_name("streamed")
PLAY = Path(__file__).with_name("play.py")
PYTHON = ("frameworks-openai-3", "frameworks-openai-2")
LARGE, SMALL = "gpt-oss-20b", "qwen3-8b"
FORCED = {"instructor", "smolagents"}
"""Those that demand a call: under the grammar that llama.cpp then has, the small model can only speak nonsense."""

pytestmark = pytest.mark.integrations


@dataclass(frozen=True)
class Example:
    name: str
    environment: str
    text: str
    output: str


def examples() -> Iterator[Example]:
    page = PAGE.read_text(encoding="utf-8")
    headings = [
        (page.count("\n", 0, found.start()) + 1, found[1]) for found in re.finditer(r"^#+ (.*)$", page, re.MULTILINE)
    ]
    parts = blocks(PAGE)
    usual = next(part.text for part in parts if "output" in part.marks)
    for part, following in zip(parts, [*parts[1:], Block((), "", 0)], strict=True):
        if part.marks[1:2] and part.marks[1] in environments.ENVIRONMENTS:
            title = [title for line, title in headings if line < part.line][-1]
            output = following.text if "output" in following.marks else usual
            yield Example(title.lower().replace(" ", "-").replace("-", "_"), part.marks[1], part.text, output.strip())


EXAMPLES = list(examples())


def chosen(*names: str) -> list[object]:
    return [
        pytest.param(example, id=example.name, marks=getattr(pytest.mark, example.environment))
        for example in EXAMPLES
        if example.environment in names
    ]


@pytest.fixture(scope="session")
def addresses() -> Iterator[list[str]]:
    """The addresses of gpt-oss and of a small model."""
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    with (
        serve(models.gpt_oss(), template="harmony", name=LARGE, context=131072) as large,
        serve(models.small(), template="hermes", name=SMALL) as small,
    ):
        yield [large.base_url, small.base_url]


@pytest.fixture(scope="session")
def proxy(addresses: list[str]) -> Iterator[str]:
    """The address of a proxy before gpt-oss."""
    with proxy_before(addresses[0]) as address:
        yield f"{address}/v1"


def save_files(folder: Path, address: str) -> None:
    """Write the page's files as it says, with the address of a proxy that is there."""
    for part in blocks(PAGE):
        if part.saved:
            (folder / part.saved).write_text(part.text.replace(PROXY, address), encoding="utf-8")


@pytest.mark.parametrize("example", chosen(*PYTHON))
def test_python(example: Example, addresses: list[str], tmp_path: Path) -> None:
    """As on the page, and then streamed where there is a program for it; with both models."""
    save_files(tmp_path, PROXY)
    (tmp_path / "whole.py").write_text(example.text, encoding="utf-8")
    programs = ["whole.py"]
    streamed = STREAMED / f"{example.name}.py"
    if streamed.exists():  # it comes in place of the example's last statement
        before = example.text.splitlines(keepends=True)[: ast.parse(example.text).body[-1].lineno - 1]
        text = "".join(before) + streamed.read_text(encoding="utf-8")
        (tmp_path / "streamed.py").write_text(text, encoding="utf-8")
        programs.append("streamed.py")
    replacements = [f"{ADDRESS}={addresses[0]}", f"{ADDRESS}={addresses[1]},{LARGE}={SMALL}"]
    if example.name in FORCED:
        del replacements[1]
    printed = run(
        [environments.path_of(example.environment), PLAY, ",".join(programs), *replacements],
        tmp_path,
        HOME=str(tmp_path),
        PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}",
        PYTHONDONTWRITEBYTECODE="1",
        LITELLM_LOCAL_MODEL_COST_MAP="True",
        OPENAI_AGENTS_DISABLE_TRACING="1",
    )
    assert printed.splitlines() == [example.output] * len(replacements) * len(programs)


@pytest.mark.parametrize("example", chosen("frameworks-node"))
def test_node(example: Example, proxy: str, tmp_path: Path) -> None:
    (tmp_path / "node_modules").symlink_to(environments.path_of(example.environment))
    more = (STREAMED / f"{example.name}.mjs").read_text(encoding="utf-8")
    (tmp_path / "program.mjs").write_text(f"{example.text}\n{more}".replace(PROXY, proxy), encoding="utf-8")
    assert run(["node", "program.mjs"], tmp_path).splitlines() == [example.output] * 2


@pytest.mark.parametrize("example", chosen("frameworks-go"))
def test_go(example: Example, proxy: str, tmp_path: Path) -> None:
    for path in environments.path_of(example.environment).glob("go.*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "main.go").write_text(example.text.replace(PROXY, proxy), encoding="utf-8")
    assert run(["go", "run", "."], tmp_path, GOFLAGS="-mod=mod", GOWORK="off").strip() == example.output


@pytest.mark.parametrize("at", [0, 1], ids=["gpt-oss", "small"])
@getattr(pytest.mark, PYTHON[0])
def test_alone(at: int, addresses: list[str]) -> None:
    """Without promptools there is no call."""
    with openai.OpenAI(base_url=addresses[at], api_key="none", max_retries=0) as client:
        question = [{"role": "user", "content": weather.QUESTION}]
        with suppress(openai.APIStatusError):
            reply = client.chat.completions.create(model=LARGE, messages=question, tools=[weather.TOOL])
            assert not reply.choices[0].message.tool_calls


@pytest.mark.parametrize("environment", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in PYTHON])
def test_wrap_says_what_to_write(environment: str, tmp_path: Path) -> None:
    """Of the real objects, by the names of their modules."""
    save_files(tmp_path, PROXY)
    program = Path(__file__).with_name("refused.py")
    printed = run([environments.path_of(environment), program, environment], tmp_path, PYTHONPATH=str(ROOT))
    assert printed
    assert [line for line in printed.splitlines() if not line.startswith("True ")] == []
