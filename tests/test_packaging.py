"""The wheel and the editable install both find what is no Python: the facts of `providers/`, the lab's templates."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import distributions, packages_distributions
from pathlib import Path

import pytest
import sbom

ROOT = Path(__file__).parent.parent
TOOLS = (sbom.CYCLONEDX, "cyclonedx-py", "--version"), (sbom.WHEEL, "wheel", "version")
ASK = """
import promptools
from promptools.profiles import families, kinds, load_builtin
from promptools.lab.llamacpp_server import TEMPLATES
from promptools.dialects import BUILT_IN, get
assert [get(name).name for name in BUILT_IN] == [*BUILT_IN]
print(promptools.__file__)
print(*kinds())
print(len(families()))
print(load_builtin("vllm").name)
print(*sorted(path.name for path in TEMPLATES.iterdir()))
"""


def ask(folder: Path, **environ: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ASK],
        cwd=folder,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", folder]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_what_it_should_and_nothing_else(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert "promptools/py.typed" in names
    assert "promptools/lab/templates/harmony.jinja" in names
    page = {str(path.relative_to(ROOT)) for path in ROOT.glob("promptools/proxy/inspector/static/*")}
    assert len(page) > 5
    assert page <= set(names)
    tables = {str(path.relative_to(ROOT)) for path in ROOT.glob("promptools/dialects/families/*.toml")}
    assert tables
    assert tables <= set(names)
    source = {
        f"promptools/_providers/{path.relative_to(ROOT / 'providers')}" for path in ROOT.glob("providers/**/*.toml")
    }
    assert source
    assert {name for name in names if "/_providers/" in name and name.endswith(".toml")} == source
    assert {name.partition("/")[0] for name in names} == {"promptools", wheel.stem.rpartition("-py3")[0] + ".dist-info"}
    assert wheel.name.startswith("promptools_compat-")


def test_the_installed_wheel_finds_its_facts(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    where, kinds, families, name, templates = ask(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert Path(where) == tmp_path / "site" / "promptools" / "__init__.py"
    assert {"vllm", "ollama", "llamacpp", "openai-compatible"} <= set(kinds.split())
    assert int(families) > 5
    assert name == "vllm"
    assert "hermes.jinja" in templates


def test_the_command_is_also_named_as_the_distribution(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    (found,) = distributions(path=[str(tmp_path / "site")])
    commands = {entry.name: entry.value for entry in found.entry_points if entry.group == "console_scripts"}
    assert commands.keys() == {"promptools", found.name}
    assert len({*commands.values()}) == 1


@pytest.mark.exhaustive
def test_uvx_runs_the_wheel_with_its_bill_of_materials(wheel, tmp_path):
    run = [sys.executable, "-m", "uv", "tool", "run", "--quiet", "--from"]
    there = [subprocess.run([*run, *each], capture_output=True, check=False).returncode for each in TOOLS]
    if any(there):
        assert os.environ.get("PROMPTOOLS_E2E") != "required"
        pytest.skip("uv or the registry is not there")
    made = shutil.copy(wheel, tmp_path)
    sbom.main(made)
    with zipfile.ZipFile(made) as archive:
        (name,) = [name for name in archive.namelist() if "/sboms/" in name]
        bill = json.loads(archive.read(name))
        record = archive.read(f"{Path(name).parent.parent}/RECORD").decode()
    assert name.endswith(".dist-info/sboms/promptools-compat.cdx.json")
    assert f"{name},sha256=" in record
    assert (bill["bomFormat"], bill["metadata"]["component"]["name"]) == ("CycloneDX", "promptools-compat")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert {re.split(r"[\[<>=;, ]", each)[0] for each in project["dependencies"]} <= {
        part["name"].replace("_", "-") for part in bill["components"]
    }
    assert str(tmp_path) not in json.dumps(bill)
    done = subprocess.run([*run, made, "promptools-compat", "version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"promptools {project['version']}"


def test_the_checkout_finds_the_same(wheel, tmp_path):
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    installed = ask(tmp_path, PYTHONPATH=str(tmp_path / "site"))
    checkout = ask(tmp_path, PYTHONPATH=str(ROOT))
    assert Path(checkout[0]) == ROOT / "promptools" / "__init__.py"
    assert checkout[1:] == installed[1:]


def test_all_that_the_package_imports_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *(each for name in extras if name != "dev" for each in extras[name])]
    declared = {re.split(r"[\[<>=;, ]", each)[0] for each in listed}
    imported = {name for path in (ROOT / "promptools").rglob("*.py") for name in top_level_imports(path)}
    foreign = imported - set(sys.stdlib_module_names) - {"promptools"}
    distributions = packages_distributions()
    of_module = {name: {each.replace("_", "-").lower() for each in distributions.get(name, [name])} for name in foreign}
    assert {name for name in foreign if not declared & of_module[name]} == set()
    assert {"anyio", "openai", "referencing"} <= foreign


def name_of(called):
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def top_level_imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.Call) and name_of(node.func) in {"import_module", "import_library"}:
            yield from (
                argument.value.partition(".")[0] for argument in node.args if isinstance(argument, ast.Constant)
            )
