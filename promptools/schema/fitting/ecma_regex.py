r"""Translate a schema's patterns, which are in JavaScript's syntax, to the syntax of the `regex` library.

These differ and are translated: `[^]` (any character), `\u{1F600}` and surrogate pairs, `\k<name>`, `\cA`, and a hyphen
before a class, as in `[+-\d]`. A pattern in slashes, `/^a+$/i`, is read as a JavaScript literal where it can mean
nothing else: an anchor inside slashes never matches. `\d` and `\w` stay as wide as in Python and Rust, whose frameworks
write patterns too. The rest is the same in all of them (ECMA-262, 2025, section 22.2).
"""

from __future__ import annotations

import re

from promptools.patterns import lazy_pattern

_TOKEN = lazy_pattern(
    r"""
    (?P<any>\[\^\](?=[*+?{]|[^\]]*\Z))                                # in Python, a class that does not end here
    | (?P<open>\[\^?\]?)
    | (?P<close>\])
    | \\u\{(?P<code>[0-9A-Fa-f]{1,6})\}
    | \\u(?P<high>[dD][89abAB][0-9A-Fa-f]{2})\\u(?P<low>[dD][c-fC-F][0-9A-Fa-f]{2})
    | \\k<(?P<name>\w+)>
    | \\c(?P<control>[A-Za-z])
    | \\. | (?P<hyphen>-)(?=\\[dDsSwW]) | .
    """,
    re.VERBOSE | re.DOTALL,
)
_LITERAL = lazy_pattern(r"/(?=\^|.*\$/[a-z]*\Z)(?P<body>.*)/(?P<flags>[dgimsuvy]*)\Z", re.DOTALL)
_LAST_CHARACTER = 0x10FFFF


def translate_pattern(pattern: str) -> str:
    """Return a pattern in the syntax of the `regex` library. O(n)."""
    literal = _LITERAL.match(pattern)
    flags = "".join(flag for flag in "ims" if literal and flag in literal["flags"])
    made = [f"(?{flags})"] if flags else []
    inside = False
    for token in _TOKEN.finditer(literal["body"] if literal else pattern):
        if inside:
            inside = not token["close"]
            made.append(rf"\{token[0]}" if token["hyphen"] else _translate_escape(token))
        else:
            inside = token["open"] is not None
            made.append(r"[\s\S]" if token["any"] else _translate_escape(token))
    return "".join(made)


def _translate_escape(match: re.Match[str]) -> str:
    """Translate an escape that only JavaScript knows; anything else stays as it is."""
    if match["code"] and int(match["code"], 16) <= _LAST_CHARACTER:
        return f"\\U{int(match['code'], 16):08x}"
    if match["high"]:
        return f"\\U{0x10000 + ((int(match['high'], 16) - 0xD800) << 10) + int(match['low'], 16) - 0xDC00:08x}"
    if match["name"]:
        return f"(?P={match['name']})"
    if match["control"]:
        return f"\\x{ord(match['control']) % 32:02x}"
    return match[0]
