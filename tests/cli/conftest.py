"""What the tests of several commands share."""

import pytest


@pytest.fixture
def repo(tmp_path):
    """A folder for an agent to work in, with one file."""
    folder = tmp_path / "repo"
    folder.mkdir()
    (folder / "notes.txt").write_text("one\n")
    return folder
