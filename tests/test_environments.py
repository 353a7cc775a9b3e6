"""Further environments: made once, told apart by what is pinned, and made again when half-made."""

import fcntl
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import environments
import pytest
import yaml
from recipes import recipe as making
from recipes.recipe import CannotMakeError, Recipe

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parent.parent
TINY = Recipe(("a==1", "b==2"))


@pytest.fixture
def installed(monkeypatch, tmp_path):
    """Every installation that was asked for; none is carried out."""
    asked: list[list[str]] = []
    monkeypatch.setenv("PROMPTOOLS_CACHE", str(tmp_path))
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"tiny": TINY})
    monkeypatch.setattr(making, "_tried", lambda command: asked.append([str(each) for each in command]) or True)
    return asked


def use(monkeypatch, **changes):
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"tiny": replace(TINY, **changes)})


def test_it_is_made_once(installed, tmp_path):
    python = environments.path_of("tiny")
    assert python.exists()
    assert tmp_path in python.parents
    assert [command[-2:] for command in installed] == [["a==1", "b==2"]]
    assert environments.path_of("tiny") == python
    assert len(installed) == 1


def test_one_that_is_half_made_is_made_again_from_nothing(installed):
    folder = environments.folder_of("tiny")
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "left-over").write_text("")
    python = environments.path_of("tiny")
    assert python.exists()
    assert not (folder / "bin" / "left-over").exists()
    assert len(installed) == 1


@pytest.mark.parametrize(
    "change", [{"pins": ("a==1", "b==3")}, {"overrides": ("c==1",)}, {"marks": ("source",)}, {"gives": "bin/other"}]
)
def test_other_pins_are_another_environment(installed, monkeypatch, change):
    before = environments.folder_of("tiny")
    use(monkeypatch, **change)
    assert environments.folder_of("tiny") != before


def test_what_is_put_beside_it_belongs_to_it(installed, monkeypatch):
    use(monkeypatch, finish=lambda folder: (folder / "bin" / "server").write_text("here"), gives="bin/server")
    assert environments.path_of("tiny").read_text() == "here"


def test_one_whose_end_fails_is_not_made(installed, monkeypatch):
    def fail(folder):
        raise CannotMakeError("no compiler: install one")

    use(monkeypatch, finish=fail)
    with pytest.raises(CannotMakeError, match="no compiler"):
        environments.path_of("tiny")
    assert not environments.is_made("tiny")


def test_what_the_machine_lacks_is_told_before_anything_is_made(installed, monkeypatch):
    use(monkeypatch, check=lambda: making.need("no-such-program", "install it"))
    with pytest.raises(CannotMakeError, match="no-such-program is not installed: install it"):
        environments.path_of("tiny")
    assert installed == []


def test_a_command_that_fails_tells_its_last_line(capfd):
    with pytest.raises(CannotMakeError, match=r"ended with status 3: the end$"):
        making.run([sys.executable, "-c", "print('long story'); print('the end'); raise SystemExit(3)"])
    assert "long story" in capfd.readouterr().err


def test_callers_can_tell_it_from_a_bug(tmp_path):
    script = Path(environments.__file__)
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(script.parent)!r}); import recipes.recipe as r\n"
        "def fail(folder, recipe): raise r.CannotMakeError('no network')\n"
        f"r.install = fail; sys.argv = ['x', 'bench']; runpy.run_path({str(script)!r}, run_name='__main__')"
    )
    environment = {"PROMPTOOLS_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == environments.UNAVAILABLE
    assert done.stderr.splitlines()[-1] == "environment bench: cannot be made here: no network"


def test_what_cannot_be_made_keeps_no_other_from_being_made(installed, monkeypatch, capsys):
    def fail(folder):
        raise CannotMakeError("no network")

    recipes = {"first": replace(TINY, finish=fail), "second": TINY}
    monkeypatch.setattr(environments, "ENVIRONMENTS", recipes)
    assert environments.main(["first", "second"]) == environments.UNAVAILABLE
    printed = capsys.readouterr()
    assert printed.out == f"{environments.path_of('second')}\n"
    assert "environment first: cannot be made here: no network\n" in printed.err
    assert environments.main(["second"]) == 0


def test_who_waits_for_another_process_is_told_so(installed, monkeypatch, capsys):
    released = []

    def wait(file, operation):
        if operation & fcntl.LOCK_NB:
            raise BlockingIOError
        released.append(capsys.readouterr().err)

    monkeypatch.setattr(environments.fcntl, "flock", wait)
    assert environments.path_of("tiny").exists()
    assert released == [f"{environments.folder_of('tiny').name} is being made by another process: waiting for it\n"]


def test_an_unknown_name_is_told(installed):
    with pytest.raises(SystemExit, match="no environment is called 'huge'"):
        environments.path_of("huge")


def test_every_version_is_pinned():
    for recipe in environments.ENVIRONMENTS.values():
        assert all(pin.count("==") == 1 for pin in recipe.pins)


def test_the_newest_release_of_a_package_is_another_environment(monkeypatch):
    recipe = Recipe(("openai[aiohttp]==3.54.0", "openai-agents==0.24.0", "ollama==0.6.3"))
    monkeypatch.setitem(environments.ENVIRONMENTS, "it", recipe)
    monkeypatch.delenv("PROMPTOOLS_NEWEST", raising=False)  # the canary sets it for this test, too
    pinned = environments.folder_of("it")
    monkeypatch.setenv("PROMPTOOLS_NEWEST", "openai ollama")
    assert environments.recipe_of("it").pins == ("openai[aiohttp]>=3.54.0", "openai-agents==0.24.0", "ollama>=0.6.3")
    assert environments.folder_of("it") != pinned


def test_the_canary_takes_what_is_pinned():
    workflow = yaml.safe_load((ROOT / ".github/workflows/canary.yml").read_text(encoding="utf-8"))
    newest = workflow["env"]["PROMPTOOLS_NEWEST"].split()
    ran = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    names = {word for line in ran for word in re.findall(r"[\w-]+", line)} & environments.ENVIRONMENTS.keys()
    pinned = {re.split(r"\[|==", pin)[0] for name in names for pin in environments.ENVIRONMENTS[name].pins}
    assert {"openai-3", "frameworks-openai-3", "vllm"} <= names
    assert set(newest) <= pinned


def test_a_pull_request_may_write_nothing():
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"], path.name
        if "pull_request" in workflow[True]:  # `on` is a boolean of YAML 1.1
            assert workflow["permissions"] == {"contents": "read"}
            assert not [name for name, job in workflow["jobs"].items() if "permissions" in job]
