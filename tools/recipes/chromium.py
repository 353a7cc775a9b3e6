"""A headless Chromium for the tests of the inspector's page, and axe-core, which finds faults of accessibility in it.

The system's Chromium or Chrome is used if one runs. Otherwise npm's `@sparticuz/chromium` has a whole browser, with the
libraries that a bare machine lacks; it is compressed with Brotli, which Node reads and Python does not.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tarfile
from pathlib import Path

from recipes.recipe import Recipe, need, run

PROGRAM = "chromium"
AXE = "node_modules/axe-core/axe.min.js"

_AXE = {"axe-core": "4.14.1"}
_BROWSER = {"@sparticuz/chromium": "153.0.0"}
_SYSTEM = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_UNPACK = """
const fs = require("fs"), zlib = require("zlib"), { pipeline } = require("stream/promises");
const [source, target] = process.argv.slice(1);
pipeline(fs.createReadStream(source), zlib.createBrotliDecompress(), fs.createWriteStream(target));
"""
_SCRIPT = '#!/bin/sh\nLD_LIBRARY_PATH="{libraries}${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}" exec "{program}" "$@"\n'


def _check() -> None:
    need("node", "the browser and axe-core come from npm: https://nodejs.org")
    need("npm", "it comes with Node")


def _finish(folder: Path) -> None:
    system = _system_browser()
    packages = _AXE if system else {**_AXE, **_BROWSER}
    manifest = {"name": "chromium", "private": True, "dependencies": packages}
    (folder / "package.json").write_text(json.dumps(manifest), encoding="utf-8")
    run([need("npm", "it comes with Node"), "install", "--silent", "--no-audit", "--no-fund", "--prefix", folder])
    program = system or _unpack(folder)
    script = folder / PROGRAM
    script.write_text(_SCRIPT.format(libraries=folder / "lib", program=program), encoding="utf-8")
    script.chmod(0o755)
    run([script, "--version"])


def _system_browser() -> str | None:
    """Return the path of a browser that runs: Ubuntu's `chromium-browser` is a stub without its snap."""
    paths = filter(None, map(shutil.which, _SYSTEM))
    return next((path for path in paths if _runs(path)), None)


def _runs(path: str) -> bool:
    try:
        return subprocess.run([path, "--version"], check=False, capture_output=True, timeout=30).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _unpack(folder: Path) -> Path:
    """Unpack the browser of the npm package and its libraries, and delete the packed ones."""
    packed = folder / "node_modules" / "@sparticuz" / "chromium" / "bin"
    node = need("node", "https://nodejs.org")
    program = folder / "browser"
    run([node, "-e", _UNPACK, packed / "chromium.br", program])
    program.chmod(0o755)
    libraries = folder / "libraries.tar"
    run([node, "-e", _UNPACK, packed / "al2023.tar.br", libraries])
    with tarfile.open(libraries) as archive:
        archive.extractall(folder, filter="data")
    libraries.unlink()
    shutil.rmtree(packed)
    return program


CHROMIUM = Recipe(
    (),
    check=_check,
    finish=_finish,
    gives=PROGRAM,
    marks=(json.dumps(_AXE), json.dumps(_BROWSER), _SCRIPT),
    takes="70 MB to download, 0.2 GB, unless the system has a Chromium",
)
