"""Hooks of MkDocs for `make docs`: the repository's own pages become pages of the site.

README, CONTRIBUTING, SECURITY and CHANGELOG lie at the root of the repository, where readers look for them; the site
has them as pages of its own. Links are written as the repository's readers need them, relative to the file that they
are in, so three things are rewritten on the way: links to those four pages, links into `docs/` from them, and links to
files that are no pages, which become plain text. The marks after a block's language belong to the tests
(`tests/test_docs.py`) and are taken off. A link that leads nowhere is left alone, and MkDocs fails on it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
LINK = re.compile(r"(?P<text>(?<!!)\[(?:[^\[\]]|\[[^\[\]]*\])+\])\((?P<to>[^)\s]+)\)")
MARKS = re.compile(r"^(?P<fence>\s*`{3,}\w+) [^\n`]+$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie at the root of the repository."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_options: Any) -> str:
    """Return `markdown` with the links of the site and blocks without marks."""
    source = {to: name for name, to in PAGES.items()}.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    here = Path(page.file.src_uri).parent

    def rewritten(match: re.Match[str]) -> str:
        path, mark, anchor = match["to"].partition("#")
        if not path or ":" in path:
            return match[0]
        target = os.path.normpath(Path(source).parent / path)
        inside = PAGES.get(target) or (target.removeprefix("docs/") if target.startswith("docs/") else None)
        if inside is None:
            return match["text"][1:-1] if (ROOT / target).exists() else match[0]
        return f"{match['text']}({os.path.relpath(inside, here)}{mark}{anchor})"

    return LINK.sub(rewritten, MARKS.sub(r"\g<fence>", markdown))
