"""Every command line in the docs is one that the parser accepts, and every option named with a command is one of it."""

import argparse
import re
import shlex
from pathlib import Path

import pytest

import promptools
from promptools.cli import build_parser

ROOT = Path(promptools.__file__).parent.parent
WRITTEN = [*ROOT.glob("docs/**/*.md"), *ROOT.glob("*.md"), *ROOT.glob("deploy/**/*.md")]
PAGES = sorted(page for page in WRITTEN if "promptools " in page.read_text(encoding="utf-8"))
PARSER = build_parser()
FENCE = re.compile(r"^ *(`{3,})([a-z]*)[^\n]*\n(.*?)^ *\1 *$", re.MULTILINE | re.DOTALL)
ENDS = {"|", "||", "&&", "&", ";", ">", ">>", "<", "2>"}


def in_blocks(text):
    """Yield the command lines of the blocks of a page, as words."""
    for _, language, block in FENCE.findall(text):
        if language not in {"sh", "bash", "console"}:
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if re.match(r"\s*(?:\$ )?(?:[A-Z_]+=\S+ )*promptools [a-z-]", line) is None:
                continue
            words = shlex.split(line, comments=True)
            words = words[words.index("promptools") + 1 :]
            yield words[: next((at for at, word in enumerate(words) if word in ENDS), len(words))]


def in_text(text):
    """Yield what a page names in a sentence, such as `promptools serve --workers N`."""
    for code in re.findall(r"`promptools ([a-z][^`\n]*(?:\n[^`\n]+)?)`", FENCE.sub("", text)):
        yield code.split()


def leaf(words):
    """Return the parser of a command, the options of its name, and the words after it."""
    parser, words = PARSER, list(words)
    while (subcommands := [each for each in parser._actions if isinstance(each, argparse._SubParsersAction)]) and words:
        parser = subcommands[0].choices[words.pop(0)]
        parser.load()
    return parser, words


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_line_is_accepted(page, capsys):
    for words in in_blocks(page.read_text(encoding="utf-8")):
        try:
            PARSER.parse_args(words)
        except SystemExit as ended:
            if ended.code != 0:
                pytest.fail(f"promptools {shlex.join(words)}: {capsys.readouterr().err}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_option_that_is_named_exists(page):
    for words in in_text(page.read_text(encoding="utf-8")):
        parser, rest = leaf(words)
        named = {word.rstrip(",.").partition("=")[0] for word in rest if word.startswith("--")}
        assert named <= set(parser._option_string_actions), f"promptools {' '.join(words)}"


def test_the_pages_have_command_lines():
    assert sum(len([*in_blocks(page.read_text(encoding="utf-8"))]) for page in PAGES) > 50
    assert sum(len([*in_text(page.read_text(encoding="utf-8"))]) for page in PAGES) > 50
