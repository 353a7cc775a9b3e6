"""What the pages show is what happens: marked blocks are run, links lead somewhere.

The words behind a block's language mark it. All blocks of one page share a folder and one namespace, in order:

    python run           the block runs without an error
    python run server    the same, with a real llama.cpp answering at http://localhost:8000/v1
    sh run               each line is a command that ends with 0
    save=NAME            the block is written to that file
    output               what the block before it prints
    toml                 a config, whole or a part of one, that loads without a warning
    toml facts           what ships about a server or a family

A block of TOML that is saved under another name than a config's is checked by the page's blocks that run.
"""

import contextlib
import gc
import io
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from pages import ADDRESS, BLOCK, blocks
from upstream import few_certificates

from benchmarks.models.markdown import read_part
from promptools import dialects
from promptools.cli import COMMANDS
from promptools.fallback import REMEDIES, classify
from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.modes.options import OPTIONS
from promptools.parsing.events import Event
from promptools.profiles import load_config
from promptools.profiles.facts import Fact, check_facts
from promptools.profiles.tables import Location
from promptools.schema.spelling import DIRECTED_SYNONYMS, SYNONYMS
from promptools.transport.settings import SETTING_NAMES
from promptools.types import DiscardWhy, FixKind, MalformedReason

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\((?P<to>[^)\s]+)\)")
HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


RUN = [page for page in PAGES if any("run" in block.marks for block in blocks(page))]


@pytest.fixture(autouse=True)
def own_dialects() -> Iterator[None]:
    before = dialects.names()
    yield
    for name in set(dialects.names()) - set(before):
        dialects.unregister(name)


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    # docs/tasks/run-a-benchmark.md has the tool on an MCP server, whose name comes before the tool's
    call = (
        '<|channel|>commentary to=functions.weather__get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
    )
    over_mcp = ScriptedReply(weather.QUESTION, call, setting="weather__get_weather")
    with serve([*weather.gpt_oss_script(), over_mcp], template="harmony", name="gpt-oss-20b") as running:
        yield running.base_url


@pytest.fixture
def no_litter(little_to_collect: None) -> Iterator[None]:
    with few_certificates():
        yield
    gc.collect()  # readers need not close what they try out: here its sockets go, and not in another test


@pytest.mark.usefixtures("no_litter")
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("page", RUN, ids=name_of)
def test_blocks_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "PROMPTOOLS_CONFIG", "PPXAI_CONFIG_FILE", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(variable, raising=False)
    wanted = any("server" in block.marks for block in blocks(page))
    address = request.getfixturevalue("server") if wanted else ADDRESS
    space: dict[str, Any] = {"__name__": "__main__"}
    printed = ""
    for block in blocks(page):
        text = block.text.replace(ADDRESS, address)
        if block.saved:
            Path(block.saved).write_text(text, encoding="utf-8")
        elif "output" in block.marks:
            assert printed.strip() == block.text.strip(), f"{name_of(page)}, line {block.line}"
        elif block.marks[:2] == ("python", "run"):
            printed = run_python("\n" * block.line + text, str(page), space)
        elif block.marks[:2] == ("sh", "run"):
            printed = run_commands(text)


def run_python(text: str, where: str, space: dict[str, Any]) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(text, where, "exec", dont_inherit=True), space)
    return out.getvalue()


def run_commands(text: str) -> str:
    out = []
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}", "COLUMNS": "100"}
    for line in filter(None, text.splitlines()):
        done = subprocess.run(
            shlex.split(line, comments=True),
            check=False,
            env=env,
            capture_output=True,
            text=True,
            encoding="utf-8",
            timeout=300,
        )
        assert done.returncode == 0, f"{line}: {done.stderr}"
        out.append(done.stdout)
    return "".join(out)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_python_blocks_are_python(page: Path) -> None:
    for block in blocks(page):
        if block.marks[:1] == ("python",):
            compile(block.text, f"{page}:{block.line}", "exec", dont_inherit=True)


CONFIGS = [
    pytest.param(block.text, id=f"{name_of(page)}-{block.line}")
    for page in PAGES
    for block in blocks(page)
    if block.marks[:1] == ("toml",) and "facts" not in block.marks and block.saved in (None, "promptools.toml")
]


@pytest.mark.parametrize("text", CONFIGS)
def test_configs_load(text: str, tmp_path: Path) -> None:
    path = tmp_path / "promptools.toml"
    path.write_text(text, encoding="utf-8")
    assert load_config(path).warnings == ()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_facts_are_facts(page: Path) -> None:
    for block in blocks(page):
        if block.marks[:2] == ("toml", "facts"):
            for each in tomllib.loads(block.text)["fact"]:
                fact = Fact(**each)
                check_facts({fact.key: fact.value}, Location(name_of(page)))


def anchor(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for found in LINK.finditer(BLOCK.sub("", page.read_text(encoding="utf-8"))):
        path, _, section = found["to"].partition("#")
        if path.startswith(("http://", "https://")):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)}: {found['to']}"
        if section:
            headings = HEADING.findall(BLOCK.sub("", target.read_text(encoding="utf-8")))
            assert section in map(anchor, headings), f"{name_of(page)}: {found['to']}"


def test_no_two_headings_of_the_matrix_have_the_same_anchor() -> None:
    text = (ROOT / "docs/reference/matrix.md").read_text(encoding="utf-8")
    headings = [anchor(each) for each in HEADING.findall(BLOCK.sub("", text))]
    assert [each for each in set(headings) if headings.count(each) > 1] == []


def test_every_page_can_be_found_from_the_readme_or_the_navigation() -> None:
    seen: set[Path] = set()
    nav = re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    waiting = [ROOT / "README.md", *(page for name in nav if (page := ROOT / "docs" / name).exists())]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        text = BLOCK.sub("", page.read_text(encoding="utf-8"))
        targets = ((page.parent / found["to"].partition("#")[0]).resolve() for found in LINK.finditer(text))
        waiting.extend(target for target in targets if target.is_file())
    assert {name_of(page) for page in PAGES} <= {name_of(page) for page in seen}


def cells(page: str, column: int) -> set[str]:
    """Return the backquoted words of a column of every table on a page."""
    rows = (line.split("|") for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines())
    return {word for row in rows if len(row) > column + 2 for word in re.findall(r"`([^`]+)`", row[column + 1])}


def test_every_failure_and_its_remedies_are_told() -> None:
    told = {}
    for line in (ROOT / "docs/reference/modes.md").read_text(encoding="utf-8").splitlines():
        if found := re.fullmatch(r"\| `(\w+)` \| .* \| ([\w, :]+) \|", line):
            told[found[1]] = tuple(found[2].split(", ")) if not found[2].startswith("none") else ()
    assert told == REMEDIES


def rows(page: str, header: str) -> list[list[str]]:
    """Return the cells of the table of a page whose header begins with these words."""
    text = (ROOT / page).read_text(encoding="utf-8")
    lines = text[text.index(f"| {header} |") :].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_the_errors_of_servers_are_of_the_kinds_that_the_page_says() -> None:
    told = {text.strip("`"): kind.strip("`") for text, _, kind, _ in rows("docs/troubleshooting.md", "error text")}
    assert told == {text: classify(text) for text in told}


def test_our_errors_are_in_the_code_as_the_page_has_them() -> None:
    told = [text.strip("`") for text, *_ in rows("docs/troubleshooting.md", "our error")]
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "promptools").rglob("*.py"))
    assert [text for text in told if text not in code] == []


def test_the_results_of_the_readme_are_those_of_the_page() -> None:
    measured = read_part(ROOT / "docs/reference/matrix.md", "results").splitlines()
    for server, _, alone, through in rows("README.md", "server"):
        said = [*(re.findall("`.*`", alone) or ["| nothing |"]), through]
        assert any(all(each in line for each in said) for line in measured), server


def test_the_readme_is_read_in_minutes() -> None:
    """Words are counted without the measured table, which is looked at, not read."""
    before, _, rest = (ROOT / "README.md").read_text(encoding="utf-8").partition("<!-- made by `make matrix` -->")
    text = before + rest.partition("<!-- end of what `make matrix` made -->")[2]
    assert len(text.split()) < 820
    assert len(rows("README.md", "What goes wrong")) == 8


def test_every_option_is_told() -> None:
    assert set(OPTIONS) | SETTING_NAMES == cells("reference/options.md", 0)


def test_every_variable_is_told() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "promptools").rglob("*.py"))
    assert set(re.findall(r"\bPROMPTOOLS_[A-Z_]+\b", code)) <= cells("reference/environment.md", 0)


def test_every_command_is_told() -> None:
    page = (ROOT / "docs/reference/commands.md").read_text(encoding="utf-8")
    table = page.partition("| command | does |\n")[2].partition("\n\n")[0]
    told = re.findall(r"^\| `([a-z-]+)` \|", table, re.MULTILINE)
    assert sorted(told) == sorted(command.name for command in COMMANDS)


def test_every_fix_reason_and_event_is_told() -> None:
    told = cells("reference/parsing.md", 0)
    kinds = {
        *get_args(FixKind),
        *get_args(MalformedReason),
        *get_args(DiscardWhy),
        *(each.__name__ for each in get_args(Event)),
    }
    assert kinds <= told


def test_every_known_alias_is_told() -> None:
    text = (ROOT / "docs/tasks/add-an-alias.md").read_text(encoding="utf-8")
    told = [frozenset(re.findall(r"`(\w+)`", line)) for line in text.splitlines() if line.startswith("- `")]
    assert set(SYNONYMS) <= set(told)
    for name, aliases in DIRECTED_SYNONYMS.items():
        assert all(f"`{each}`" in text for each in (name, *aliases))
