"""Provide the program `apply_patch` on the path of every sandbox, because gpt-oss runs it in the shell.

The program is a shell script. It looks for a Python, which then applies the patch with promptools' own code. The code
needs only the standard library, so any Python from 3.11 on will do: the Python of this process if commands can see it,
or another Python in the sandbox. If there is none, the program prints an error.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path

import promptools

NAME = "apply_patch"
PACKAGE = Path(promptools.__file__).parent
"""The folder with promptools' code on this machine."""
INSIDE = "/opt/promptools"
"""The folder in which commands find the code, if the sandbox has its own file system. Under bubblewrap, the program is
in this folder too; in Docker, the program is in a folder of the default PATH."""
PYTHON = os.path.realpath(sys.executable)
_IMPORT = "import sys; sys.path.insert(0, {folder!r}); from promptools.harness.toolsets.patch import main; main()"
_OPTIONS = "-I -S -B"
"""Options of Python that keep the current folder and the environment from deciding what is imported."""
_SCRIPT = """\
#!/bin/sh
for python in {pythons}; do
    if "$python" {options} -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        exec "$python" {options} -c {code} "$@"
    fi
done
echo "apply_patch: it needs Python 3.11 or later, and there is none here; call the tool repo_browser.apply_patch" >&2
exit 127
"""


class SandboxPrograms:
    """A temporary folder with the program `apply_patch`. It is removed when the object is closed or garbage-collected.

    `package_parent` is the folder that contains the package `promptools`, as commands see it. The interpreters in
    `pythons` are tried in order.
    """

    def __init__(self, package_parent: str | Path, pythons: Sequence[str]) -> None:
        temporary = tempfile.mkdtemp(prefix="promptools-programs-")
        self.close = weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        self.folder = Path(temporary, "bin")
        self.folder.mkdir(mode=0o755)
        self.file = self.folder / NAME
        code = shlex.quote(_IMPORT.format(folder=str(package_parent)))
        self.file.write_text(_SCRIPT.format(pythons=shlex.join(pythons), options=_OPTIONS, code=code), encoding="utf-8")
        self.file.chmod(0o755)


def program_environment(folder: Path | str, path: str) -> dict[str, str]:
    """Return environment variables that make a shell look for programs first in a folder, then in those of `path`.

    A login shell, as in `bash -lc`, resets its path. For this reason bash also gets a function `apply_patch`, which
    runs the program in the folder.
    """
    function = f'() {{ {shlex.quote(f"{folder}/{NAME}")} "$@"; }}'
    return {"PATH": f"{folder}:{path}", f"BASH_FUNC_{NAME}%%": function}
