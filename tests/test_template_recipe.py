"""Chat templates out of a source distribution: taken only when they are what they should be."""

import hashlib
import io
import tarfile

import pytest
from recipes import templates
from recipes.recipe import CannotMakeError

TEXT = b"{{ messages }}"


@pytest.fixture
def archive(monkeypatch, tmp_path):
    """An archive with one template."""
    monkeypatch.setattr(templates, "FILES", {"tiny": ("Tiny-1B", hashlib.sha256(TEXT).hexdigest())})
    path = tmp_path / "package.tar.gz"
    with tarfile.open(path, "w:gz") as packed:
        member = tarfile.TarInfo(templates._MEMBER.format("Tiny-1B"))
        member.size = len(TEXT)
        packed.addfile(member, io.BytesIO(TEXT))
    return path


def test_a_template_is_taken_by_its_name(archive, tmp_path):
    templates.take(archive, tmp_path)
    assert (tmp_path / "tiny.jinja").read_bytes() == TEXT


@pytest.mark.parametrize("file", [("Tiny-1B", "0" * 64), ("Other-1B", hashlib.sha256(TEXT).hexdigest())])
def test_another_one_is_not_taken(archive, tmp_path, monkeypatch, file):
    monkeypatch.setattr(templates, "FILES", {"tiny": file})
    with pytest.raises(CannotMakeError, match=rf"{file[0]}\.jinja in package\.tar\.gz has sha256"):
        templates.take(archive, tmp_path)
    assert not (tmp_path / "tiny.jinja").exists()
