"""Hooks of MkDocs for `make docs`: the repository's own pages become pages of the site.

README, CONTRIBUTING, SECURITY and CHANGELOG lie at the root of the repository, where readers look for them; the site
has them as pages of its own. Links are written as the repository's readers need them, relative to the file that they
are in, so three things are rewritten on the way: links to those four pages, links into `docs/` from them, and links to
files that are not pages, which become plain text. The marks after a block's language are for the tests
(`tests/test_docs.py`), and are removed. A link that leads nowhere is left unchanged, so MkDocs fails on it.

`llms.txt` lists the pages for language models, in the order of the navigation, each with its first sentence. Its
format is that of https://llmstxt.org.
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
LINK = re.compile(r"(?P<text>!?\[(?:[^\[\]]|\[[^\[\]]*\])+\])\((?P<to>[^)\s]+)\)")
BLOCK = re.compile(r"^(`{3,}).*?^\1", re.MULTILINE | re.DOTALL)
SENTENCE = re.compile(r".+?\.(?=\s|$)")
MARKS = re.compile(r"^(?P<fence>\s*`{3,}\w+) [^\n`]+$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that lie at the root of the repository."""
    for name, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / name).read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: Any, **_options: Any) -> str:
    """Return `markdown` with links rewritten for the site, and with the marks of blocks removed."""
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


def on_env(env: Any, config: Any, files: Files) -> Any:
    """Add llms.txt."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}"]
    for title, entry in ((title, entry) for part in config.nav for title, entry in part.items()):
        own = entry if isinstance(entry, list) else [{title: entry}]
        lines += ["", f"## {title}", ""]
        for name, path in ((name, path) for page in own for name, path in page.items()):
            file = files.get_file_from_path(path)
            lines.append(f"- [{name}]({file.url}): {first_sentence(file.page.markdown)}")
    files.append(File.generated(config, "llms.txt", content="\n".join(lines) + "\n"))
    return env


def first_sentence(markdown: str) -> str:
    """Return the first sentence of a page's text, without its links."""
    paragraphs = BLOCK.sub("", markdown).split("\n\n")
    prose = next(
        (each for each in map(str.strip, paragraphs) if each[:1] not in {"", "#", "|", "-", "!", "<", ":"}), ""
    )
    text = LINK.sub(lambda found: found["text"][1:-1], " ".join(prose.split()))
    found = SENTENCE.match(text)
    return found[0] if found else text
