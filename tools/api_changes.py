"""List the changes since a tag that would break programs which use the public API: `make api-changes`.

    python tools/api_changes.py [REF]

REF is a tag or a commit (default: the last tag). Griffe compares names, parameters, defaults, bases and attributes,
from the sources alone. Exit status 1 if there is a change: it needs a line in the changelog, and the deprecation that
docs/reference/api.md promises.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).parents[1]
PUBLIC = frozenset(
    f"promptools.{name}"
    for name in ("batch", "dialects", "errors", "harmony", "harness.agent", "ollama", "recording", "testing", "types")
)
"""The modules that are public besides the package itself, as docs/reference/api.md says."""


def find_changes(ref: str, root: Path = ROOT) -> Iterator[griffe.Breakage]:
    """Yield the incompatible changes of the checkout since `ref`."""
    old = griffe.load_git("promptools", ref=ref, repo=root, resolve_aliases=True, allow_inspection=False)
    new = griffe.load(
        "promptools", search_paths=[root], try_relative_path=False, resolve_aliases=True, allow_inspection=False
    )
    _hide_private_modules(old)
    return griffe.find_breaking_changes(old, new)


def _hide_private_modules(module: griffe.Object | griffe.Alias) -> None:
    """Mark which modules are public; by default, Griffe takes every module without an underscore for public."""
    for member in module.members.values():
        if not member.is_alias and member.is_module:  # an alias may lead out of the package
            member.public = any(f"{name}.".startswith(f"{member.path}.") for name in PUBLIC)
            _hide_private_modules(member)


def last_tag() -> str | None:
    done = subprocess.run(
        ["git", "-C", ROOT, "describe", "--tags", "--abbrev=0"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or None


def main(arguments: list[str]) -> int:
    ref = arguments[0] if arguments else last_tag()
    if ref is None:
        print("there is no tag yet to compare with; name a commit")
        return 0
    changes = sorted(change.explain(griffe.ExplanationStyle.ONE_LINE) for change in find_changes(ref))
    print("\n".join((*changes, f"{len(changes)} incompatible changes since {ref}")))
    return 1 if changes else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
