"""Chat templates of model families, from the source distribution of llama-cpp-python, which carries llama.cpp's own.

The templates are facts: how each family declares tools, writes calls and ends its turns. The distribution is data: it
is downloaded without dependencies, read as an archive, and never built. A template is accepted only with the sha256
that is pinned here.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

from recipes.recipe import CannotMakeError, Recipe, need_disk, run

VERSION = "0.3.36"

FILES = {
    "hermes": ("Qwen-Qwen3-0.6B", "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5"),
    "qwq": ("Qwen-QwQ-32B", "5ed15374ce53e19a7798710736a2c9fe41c79f7385e8421a2080d6575a80ef1b"),
    "qwen3_coder": ("Qwen3-Coder", "d287fb2edf144207f868ae1b282755dc19db2a3f1c5b3a3d57e9e5abffa98392"),
    "llama3": ("meta-llama-Llama-3.1-8B-Instruct", "e10ca381b1ccc5cf9db52e371f3b6651576caee0a630b452e2816b2d404d4b65"),
    "mistral": (
        "mistralai-Mistral-Nemo-Instruct-2407",
        "e4676cb56dffea7782fd3e2b577cfaf1e123537e6ef49b3ec7caa6c095c62272",
    ),
    "glm": ("GLM-4.6", "8804f445c761b9f259e3c1126a579d481a22ca09b2a3d32bcc4eb91bc36e0301"),
    "deepseek": ("llama-cpp-deepseek-r1", "0d11fd8d7cf3f212733d73dfe09ead89a14a18816661dc30ea1fb3147428fba1"),
    "deepseek_v31": ("deepseek-ai-DeepSeek-V3.1", "d9f5f351b276cf9e81d009db08830db7d38e94927aecd09a7beb43e2aafee94e"),
    "dsml": ("deepseek-ai-DeepSeek-V3.2", "8e5a13fcc4bdd4d943311fc59064b805770fdeddfccbd7f1c252cc16e8acaf3d"),
}
"""The templates, by the names that their files get here. Each has its name in the distribution, and its sha256."""

_PACKAGE = f"llama_cpp_python-{VERSION}"
_MEMBER = _PACKAGE + "/vendor/llama.cpp/models/templates/{}.jinja"
_DISK = 0.5  # GB, mostly while pip reads what the distribution says of itself


def _check() -> None:
    need_disk(_DISK, "llama-cpp-python's source distribution")


def _finish(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir"]
        source = ["--no-deps", "--no-binary", "llama-cpp-python", "--dest", scratch]
        run([*pip, *source, f"llama-cpp-python=={VERSION}"], os.environ | {"TMPDIR": scratch})
        take(Path(scratch) / f"{_PACKAGE}.tar.gz", folder)


def take(archive: Path, folder: Path) -> None:
    """Write the templates in `archive` to `folder`."""
    with tarfile.open(archive) as packed:
        for name, (file, sha256) in FILES.items():
            try:
                member = packed.extractfile(_MEMBER.format(file))
            except KeyError:
                member = None
            data = b"" if member is None else member.read()
            digest = hashlib.sha256(data).hexdigest()
            if digest != sha256:
                raise CannotMakeError(f"{file}.jinja in {archive.name} has sha256 {digest}, not {sha256}")
            (folder / f"{name}.jinja").write_bytes(data)


TEMPLATES = Recipe(
    (),
    check=_check,
    finish=_finish,
    gives="",
    marks=(VERSION, *(part for pair in FILES.values() for part in pair)),
    takes="0.1 GB to download",
)


# All templates of llama.cpp, and those that vLLM recommends for tool calls: the input of `make results-learned`.


VLLM_VERSION = "0.28.0"
_OF_VLLM = "tool_chat_template_*.jinja"
_ALL = "48a49273acf22c9345f075e008c3ca785811bd31172a0a488b99db3e883417f1"
"""The sha256 of all these templates together: of their names and texts, in the order of the names."""


def _finish_all(folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        environment = os.environ | {"TMPDIR": scratch}
        pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir"]
        pip += ["--no-deps", "--dest", scratch]
        run([*pip, "--no-binary", "llama-cpp-python", f"llama-cpp-python=={VERSION}"], environment)
        with tarfile.open(Path(scratch) / f"{_PACKAGE}.tar.gz") as packed:
            for member in packed.getmembers():
                file = packed.extractfile(member) if member.name.startswith(_MEMBER.partition("{}")[0]) else None
                if file is not None and member.name.endswith(".jinja"):
                    (folder / Path(member.name).name).write_bytes(file.read())
        # pip fails when it asks vLLM's build for metadata, which needs torch; by then the archive is unpacked
        unpacked = [*pip, "--no-clean", "--no-build-isolation", "--no-binary", "vllm", f"vllm=={VLLM_VERSION}"]
        subprocess.run(unpacked, env=environment, check=False, capture_output=True)
        for path in sorted(Path(scratch).glob(f"pip-*/*/examples/**/{_OF_VLLM}")):
            (folder / path.name).write_bytes(path.read_bytes())
    digest = digest_of(folder)
    if digest != _ALL:
        raise CannotMakeError(f"the templates of llama-cpp-python and vLLM have the sha256 {digest}, not {_ALL}")


def digest_of(folder: Path) -> str:
    """Return the sha256 of the templates in a folder, their names and texts."""
    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.jinja")):
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    return digest.hexdigest()


ALL_TEMPLATES = Recipe(
    (),
    check=_check,
    finish=_finish_all,
    gives="",
    marks=(VERSION, VLLM_VERSION, _ALL),
    takes="0.1 GB to download",
)
