"""Further environments: made once, told apart by what is pinned, and made again when half-made."""

import environments
import pytest


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Every installation that was asked for; none is carried out."""
    asked: list[list[str]] = []
    monkeypatch.setenv("PROMPTOOLS_CACHE", str(tmp_path))
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"tiny": ("a==1", "b==2")})
    monkeypatch.setattr(environments, "_install", lambda command: asked.append([str(each) for each in command]) or True)
    return asked


def test_it_is_made_once(installed, tmp_path):
    python = environments.python_of("tiny")
    assert python.exists()
    assert tmp_path in python.parents
    assert [command[-2:] for command in installed] == [["a==1", "b==2"]]
    assert environments.python_of("tiny") == python
    assert len(installed) == 1


def test_one_that_is_half_made_is_made_again_from_nothing(installed):
    folder = environments.folder_of("tiny")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "left-over").write_text("")
    python = environments.python_of("tiny")
    assert python.exists()
    assert not (folder / "bin" / "left-over").exists()
    assert len(installed) == 1


def test_other_pins_are_another_environment(installed, monkeypatch):
    before = environments.folder_of("tiny")
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"tiny": ("a==1", "b==3")})
    assert environments.folder_of("tiny") != before


def test_an_unknown_name_is_told(installed):
    with pytest.raises(SystemExit, match="no environment is called 'huge'"):
        environments.python_of("huge")


def test_every_version_is_pinned():
    for pins in environments.ENVIRONMENTS.values():
        assert all(pin.count("==") == 1 for pin in pins)
