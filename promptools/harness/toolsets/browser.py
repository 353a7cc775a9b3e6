"""The tools `browser.search`, `browser.open` and `browser.find` that gpt-oss was trained on, backed by your own search.

The search is a URL that answers in JSON, such as SearXNG's, or a tool, such as one of an MCP server. Pages are shown as
numbered lines with numbered links. Only addresses that a search or a page has shown can be opened. If a model could
open any address, then after reading a private file it could leak the file through the address of a page. Addresses of
this machine and of its network are refused.
"""

from __future__ import annotations

import re
import socket
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html.parser import HTMLParser
from ipaddress import ip_address
from typing import Any, TypeAlias
from urllib.parse import quote, urljoin, urlsplit

from promptools.errors import UsageError, clip, without_credentials
from promptools.harness.toolsets.agent_tool import AgentTool, Toolset
from promptools.json_values import is_array, is_object, try_json
from promptools.transport import installed_library
from promptools.types import Schema, Tool

BROWSER = "browser"
NAMESPACE = (
    "Searching the web and reading what was found. A page has a number, shown as [1], and numbered lines; its links are"
    " 【id†text】. Cite lines as 【1†L3-L5】."
)
SECONDS = 30.0
MAX_PAGE = 4 << 20
"""Maximum number of bytes of a page that are read."""
MAX_REDIRECTS = 5
LINES = 100
"""Maximum number of lines of a page that are shown at a time."""
MAX_FOUND = 50
WIDTH = 100


class BrowserError(ValueError):
    """A page cannot be shown. The message is for the model."""


@dataclass(frozen=True, slots=True)
class Found:
    """A search result."""

    url: str
    title: str = ""
    text: str = ""


Search: TypeAlias = Callable[[str, int], "Sequence[Found] | str"]
"""A search: a function that gets a query and the number of results to return. It returns a list of results, or a text
with results."""


def search_by_url(template: str) -> Search:
    """Return a search that requests a URL, made from a template such as `https://example.org/search?q={query}`.

    `{query}` is replaced by the query, and `{count}`, if present, by the number of results requested. The server may
    answer with text, or with JSON that contains a list of results.
    """
    if "{query}" not in template or not template.startswith(("http://", "https://")):
        raise UsageError(
            f"{without_credentials(template)!r} is not the URL of a search: write {{query}} where the query goes"
        )

    def search(query: str, count: int) -> Sequence[Found] | str:
        url = template.replace("{query}", quote(query, safe="")).replace("{count}", str(count))
        text = _get(url, lambda _: None)[1]
        value = try_json(text)
        return list(_results(value)) if value is not None else text

    return search


def search_by_tool(tool: AgentTool) -> Search:
    """Return a search that calls a tool, such as one of an MCP server.

    The query becomes the tool's argument `query` or `q`, or its first string argument if it has neither.
    """
    properties: dict[str, Any] = tool.tool.parameters.get("properties") or {}
    required: list[str] = tool.tool.parameters.get("required") or []
    texts = [name for name in (*required, *properties) if properties.get(name, {}).get("type") == "string"]
    if not texts:
        raise UsageError(f"the tool {tool.tool.name!r} takes no text, so it cannot be a search")
    name = next((text for text in texts if text in {"query", "q"}), texts[0])

    def search(query: str, _: int) -> Sequence[Found] | str:
        text = str(tool.run(**{name: query}))
        return list(_results(try_json(text))) or text

    return search


def browser_tools(search: Search, *, allow_private: bool = False) -> Toolset:
    """Return the tools `browser.search`, `browser.open` and `browser.find`.

    If `allow_private` is true, pages of this machine and of its network may be opened too.
    """
    browser = _Browser(search, allow_private=allow_private)
    number: Schema = {"type": "number", "default": -1}
    string: Schema = {"type": "string"}
    tools = (
        _tool("search", "Searches the web.", {"query": string, "topn": {"type": "number", "default": 10}}, "query"),
        _tool(
            "open",
            "Shows a link of a page by its id, or a page again from the line `loc` on.",
            {
                "id": {"type": ["number", "string"], "default": -1},
                "cursor": number,
                "loc": number,
                "num_lines": number,
            },
        ),
        _tool("find", "Finds a text in a page.", {"pattern": string, "cursor": number}, "pattern"),
    )
    runs: tuple[Callable[..., str], ...] = (browser.search, browser.open, browser.find)
    entries = tuple(AgentTool(tool, run) for tool, run in zip(tools, runs, strict=True))
    return Toolset(entries, {BROWSER: NAMESPACE})


def _tool(name: str, description: str, parameters: dict[str, Any], required: str = "") -> Tool:
    schema: Schema = {"type": "object", "properties": parameters, **({"required": [required]} if required else {})}
    return Tool(f"{BROWSER}.{name}", description, schema, dangerous=True)


def _results(value: Any) -> Iterator[Found]:
    """Yield the search results in an answer, in which the list of results may be nested at any depth."""
    if is_array(value):
        for item in value:
            if is_object(item) and isinstance(url := item.get("url") or item.get("link") or item.get("href"), str):
                text = item.get("content") or item.get("snippet") or item.get("description") or item.get("text")
                yield Found(url, str(item.get("title") or url), str(text or ""))
    elif is_object(value):
        for inner in value.values():
            found = list(_results(inner))
            if found:
                yield from found
                return


# Pages: their lines and links, which of them were opened, and how they are shown.


@dataclass(frozen=True, slots=True)
class _Page:
    title: str
    url: str
    lines: tuple[str, ...]
    links: tuple[str, ...] = ()


class _Browser:
    """Holds the pages shown in one run, and runs the browser tools on them."""

    def __init__(self, search: Search, *, allow_private: bool) -> None:
        self._search = search
        self._allow_private = allow_private
        self._pages: list[_Page] = []

    def search(self, query: str, topn: float = 10, **_: Any) -> str:
        """Search, and show the results as a page."""
        found = self._search(query, int(max(1, min(topn, 50))))
        title = f"results for {clip(query)!r}"
        if isinstance(found, str):
            links = tuple(dict.fromkeys(re.findall(r"https?://[^\s\"'<>)\]]+", found)))
            lines = [*_wrapped(found), *(f"【{at}†{url}】" for at, url in enumerate(links))]
            return self._show(_Page(title, "", tuple(lines), links))
        lines = [
            line
            for at, each in enumerate(found[: int(topn)])
            for line in (f"【{at}†{_plain(each.title)}】 {each.url}", *_wrapped(each.text), "")
        ]
        return self._show(_Page(title, "", tuple(lines or ["no results"]), tuple(each.url for each in found)))

    def open(self, id: float | str = -1, cursor: float = -1, loc: float = -1, num_lines: float = -1, **_: Any) -> str:  # noqa: A002  the model's name
        """Open a link, or show a page again, from the line `loc` onward."""
        if id == -1:
            return self._show(self._page(cursor), int(loc), int(num_lines))
        url = id if isinstance(id, str) and not id.isdigit() else self._link(int(id), cursor)
        if url not in {link for page in self._pages for link in (*page.links, page.url)}:
            raise BrowserError(f"{clip(url)!r} was not found by a search, nor is it a link of a page; search for it")
        return self._show(_read(*_get(url, self._check)), int(loc), int(num_lines))

    def find(self, pattern: str, cursor: float = -1, **_: Any) -> str:
        """Show the lines of a page that contain the text `pattern`."""
        page = self._page(cursor)
        found = [at for at, line in enumerate(page.lines) if pattern.lower() in line.lower()][:MAX_FOUND]
        shown = [f"L{at}: {page.lines[at]}" for at in found]
        return "\n".join(shown) or f"{clip(pattern)!r} is not in this page"

    def _page(self, cursor: float) -> _Page:
        if not self._pages:
            raise BrowserError("there is no page yet: search first")
        at = len(self._pages) - 1 if cursor == -1 else int(cursor)
        if not 0 <= at < len(self._pages):
            raise BrowserError(f"there is no page [{at}]; the last one is [{len(self._pages) - 1}]")
        return self._pages[at]

    def _link(self, number: int, cursor: float) -> str:
        links = self._page(cursor).links
        if not 0 <= number < len(links):
            raise BrowserError(f"the page has no link {number}; it has {len(links)}, numbered from 0")
        return links[number]

    def _show(self, page: _Page, loc: int = -1, num_lines: int = -1) -> str:
        start = max(loc, 0)
        if start >= len(page.lines):
            raise BrowserError(f"the page has {len(page.lines)} lines; there is no line {start}")
        if not self._pages or self._pages[-1] is not page:
            self._pages.append(page)
        end = min(len(page.lines), start + (num_lines if 0 < num_lines <= LINES else LINES))
        address = f" ({page.url})" if page.url else ""
        head = f"[{len(self._pages) - 1}] {page.title}{address}\nlines {start} to {end - 1} of {len(page.lines)}\n"
        return "\n".join([head, *(f"L{at}: {page.lines[at]}" for at in range(start, end))])

    def _check(self, url: str) -> None:
        """Raise `BrowserError` if `url` may not be opened. Only HTTP(S) addresses may be opened.

        If private pages are not allowed, all IP addresses of the host must be public, and there must be at least one.
        """
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise BrowserError(f"{clip(url)!r} is not a page of the web")
        if self._allow_private:
            return
        try:
            found = socket.getaddrinfo(parts.hostname, parts.port or 0, type=socket.SOCK_STREAM)
        except OSError as error:
            raise BrowserError(f"{clip(parts.hostname)!r} has no address: {error}") from None
        if not all(ip_address(str(entry[4][0]).partition("%")[0]).is_global for entry in found):
            raise BrowserError(f"{clip(parts.hostname)!r} is in a private network; only public pages can be opened")


def _get(url: str, check: Callable[[str], None]) -> tuple[str, str, str]:
    """Request a page; return its address after all redirects, its text and its content type.

    `check` is called with each address before a request is sent to it, and raises an exception to refuse the address.
    """
    http: Any = installed_library().module
    with http.Client(timeout=SECONDS, follow_redirects=False) as client:
        for _ in range(MAX_REDIRECTS + 1):
            check(url)
            try:
                with client.stream("GET", url, headers={"user-agent": "promptools", "accept": "*/*"}) as response:
                    if response.has_redirect_location:
                        url = urljoin(url, response.headers["location"])
                        continue
                    if response.status_code >= 400:
                        raise BrowserError(f"{clip(without_credentials(url))!r} answered {response.status_code}")
                    body = b""
                    for piece in response.iter_bytes():
                        body += piece
                        if len(body) > MAX_PAGE:
                            break
                    kind = response.headers.get("content-type", "")
                    return url, body[:MAX_PAGE].decode(response.encoding or "utf-8", "replace"), kind
            except http.HTTPError as error:
                raise BrowserError(f"{clip(without_credentials(url))!r} cannot be read: {error}") from error
    raise BrowserError(f"{clip(url)!r} leads from one address to another, more than {MAX_REDIRECTS} times")


def _read(url: str, text: str, kind: str) -> _Page:
    if "html" not in kind and not text.lstrip()[:100].lower().startswith(("<!doctype html", "<html")):
        return _Page(url, url, tuple(_wrapped(text) or ["the page is empty"]))
    parser = _HtmlText(url)
    parser.feed(text)
    parser.close()
    lines = _wrapped("".join(parser.parts)) or ["the page is empty"]
    return _Page(_plain("".join(parser.title)) or url, url, tuple(lines), tuple(parser.links))


def _plain(text: str) -> str:
    """Return a text on one line; the brackets 【】, which mark links, are replaced with similar ones."""
    return " ".join(text.split()).translate(str.maketrans("【】", "〖〗"))


def _wrapped(text: str) -> list[str]:
    lines = [" ".join(line.split()) for line in text.splitlines()]
    kept = [line for at, line in enumerate(lines) if line or (at and lines[at - 1])]
    return [part for line in kept for part in textwrap.wrap(line, WIDTH, break_on_hyphens=False) or [""]]


class _HtmlText(HTMLParser):
    """Converts the HTML of a page to lines of text, with numbered links."""

    SKIPPED = frozenset({"script", "style", "noscript", "template", "svg"})
    INLINE = frozenset({"a", "abbr", "b", "bdi", "cite", "code", "em", "font", "i", "kbd", "q", "s", "small", "span"})

    def __init__(self, url: str) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.title: list[str] = []
        self.links: list[str] = []
        self._url = url
        self._skipped = 0
        self._in_title = self._in_link = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin a line, a link or the title, or skip an element."""
        self._skipped += tag in self.SKIPPED
        self._in_title = self._in_title or tag == "title"
        address = urljoin(self._url, dict(attrs).get("href") or "").partition("#")[0] if tag == "a" else ""
        if address.startswith(("http://", "https://")) and not (self._skipped or self._in_link):
            self.parts.append(f"【{len(self.links)}†")
            self.links.append(address)
            self._in_link = True
        elif tag not in self.INLINE and tag != "strong":
            self.parts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        """End the line, link, title or skipped element that the start tag began."""
        self._skipped -= tag in self.SKIPPED and self._skipped > 0
        if tag == "title":
            self._in_title = False
        if tag == "a" and self._in_link:
            self._in_link = False
            self.parts.append("】")
        elif tag not in self.INLINE and tag != "strong":
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        """Add text. The brackets 【】 in it are replaced, because these brackets mark links."""
        text = data.translate(str.maketrans("【】", "〖〗"))
        if self._in_title:
            self.title.append(text)
        elif not self._skipped:
            self.parts.append(" ".join(text.splitlines()) if self._in_link else text)
