"""Put a bill of materials into a wheel, in `.dist-info/sboms` (PEP 770): `python tools/sbom.py dist/NAME.whl`.

It lists what the wheel needs without extras, in the versions that are installed today, in the format CycloneDX. The
wheel is replaced. Needs uv, with which CycloneDX's own program and pypa's `wheel` are run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
CYCLONEDX = "cyclonedx-bom==7.5.0"
WHEEL = "wheel==0.48.0"


def main(name: str) -> None:
    """Replace the wheel."""
    wheel = Path(name).resolve()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "unpacked").mkdir()
        _uv("tool", "run", "--from", WHEEL, "wheel", "unpack", "-d", f"{folder}/unpacked", str(wheel))
        (unpacked,) = (Path(folder) / "unpacked").iterdir()
        (info,) = unpacked.glob("*.dist-info")
        (info / "sboms").mkdir()
        write_sbom(wheel, info / "sboms" / "promptools-compat.cdx.json", Path(folder))
        _uv("tool", "run", "--from", WHEEL, "wheel", "pack", "-d", str(wheel.parent), str(unpacked))
    print(wheel)


def write_sbom(wheel: Path, target: Path, folder: Path) -> None:
    """Write what is installed with the wheel; the document is the same for the same versions."""
    python = folder / "environment" / "bin" / "python"
    _uv("venv", str(folder / "environment"))
    _uv("pip", "install", "--python", str(python), str(wheel))
    options = ("--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "library", "--output-reproducible")
    command = ("cyclonedx-py", "environment", str(python), *options, "-o", str(target))
    _uv("tool", "run", "--from", CYCLONEDX, *command)


def _uv(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "uv", words[0], "--quiet", *words[1:]], check=True)


if __name__ == "__main__":
    main(sys.argv[1])
