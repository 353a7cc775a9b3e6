"""Where the headless Chromium comes from: the system, if one runs there, else npm."""

import pytest
from recipes import chromium
from recipes.recipe import CannotMakeError


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """A folder that is all of PATH."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    def write(name, status):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {status}\n", encoding="utf-8")
        (tmp_path / name).chmod(0o755)
        return str(tmp_path / name)

    monkeypatch.setattr(chromium, "_SYSTEM", ("chromium-browser", "google-chrome"))
    return write


def test_the_first_that_runs_is_used(programs):
    assert chromium._system_browser() is None
    programs("chromium-browser", 1)  # Ubuntu's stub
    assert chromium._system_browser() is None
    chrome = programs("google-chrome", 0)
    assert chromium._system_browser() == chrome


def test_without_npm_one_line_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotMakeError, match=r"node is not installed: .*nodejs\.org"):
        chromium.CHROMIUM.check()
