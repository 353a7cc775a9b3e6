"""The command that installs an extra names the folder that promptools was installed from, so it works as it is."""

import json
import shlex
from importlib import metadata

import pytest

from promptools.errors import DISTRIBUTION, _installed_from, install_command


class Installed:
    """A distribution that says where it came from, as pip and uv record it."""

    def __init__(self, origin):
        self.origin = origin

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.origin


@pytest.fixture
def came_from(monkeypatch):
    def installed(origin):
        _installed_from.cache_clear()
        monkeypatch.setattr(metadata, "distribution", lambda name: Installed(origin))

    yield installed
    _installed_from.cache_clear()


@pytest.mark.parametrize("name", ["checkout", "my code", "it's"])
def test_from_a_folder_the_folder_is_named(came_from, tmp_path, name):
    folder = tmp_path / name
    folder.mkdir()
    came_from(json.dumps({"url": folder.as_uri(), "dir_info": {"editable": True}}))
    assert shlex.split(install_command("batch,ray")) == ["pip", "install", f"{folder}[batch,ray]"]


def test_from_elsewhere_the_distribution_is_named(came_from, tmp_path):
    wheel = tmp_path / "promptools_compat-0.1.0-py3-none-any.whl"
    wheel.touch()
    gone = {"url": (tmp_path / "gone").as_uri(), "dir_info": {}}
    git = {"url": "https://example.com/promptools.git", "vcs_info": {"vcs": "git", "commit_id": "0" * 40}}
    for origin in (None, json.dumps({"url": wheel.as_uri(), "archive_info": {}}), json.dumps(gone), json.dumps(git)):
        came_from(origin)
        assert install_command("server") == f"pip install '{DISTRIBUTION}[server]'"


def test_without_a_distribution_it_is_named_all_the_same(came_from, monkeypatch):
    def missing(name):
        raise metadata.PackageNotFoundError(name)

    came_from(None)
    monkeypatch.setattr(metadata, "distribution", missing)
    assert install_command("server") == f"pip install '{DISTRIBUTION}[server]'"
