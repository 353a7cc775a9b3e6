"""`make api-changes`: what it takes for a change of the public API."""

import os
import subprocess

import pytest
from api_changes import PUBLIC, find_changes

import promptools

PACKAGE = {
    "__init__.py": """
        from __future__ import annotations
        TYPE_CHECKING = False
        if TYPE_CHECKING:
            from promptools.engine import parse
        __all__ = ["parse"]
    """,
    "engine.py": """
        def parse(text, tools=None): ...
        def scan(text): ...
    """,
    "errors.py": """
        class UsageError(Exception): ...
    """,
}


def write(folder, files):
    for name, text in files.items():
        (folder / name).write_text("\n".join(line[8:] for line in text.splitlines()))


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    (tmp_path / "promptools").mkdir()
    write(tmp_path / "promptools", PACKAGE)
    who = ["-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    for words in (["init", "-q"], ["add", "."], [*who, "commit", "-qm", "first"]):
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True)
    return tmp_path


def changes(checkout):
    return sorted((change.kind.name, change.obj.path) for change in find_changes("HEAD", checkout))


def test_nothing_has_changed(checkout):
    assert changes(checkout) == []


def test_what_breaks_programs_is_found_and_private_modules_are_not_compared(checkout):
    write(
        checkout / "promptools",
        {
            "engine.py": """
        def parse(text, *, dialect): ...
    """,
            "errors.py": """
        class UsageErrors(Exception): ...
    """,
        },
    )
    assert changes(checkout) == [
        ("OBJECT_REMOVED", "promptools.errors.UsageError"),
        ("PARAMETER_ADDED_REQUIRED", "promptools.engine.parse"),
        ("PARAMETER_REMOVED", "promptools.engine.parse"),
    ]


def test_the_public_modules_are_there():
    for name in PUBLIC:
        __import__(name)
    assert promptools.errors.UsageError
