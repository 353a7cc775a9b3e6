"""The drafts of JSON Schema: which one a schema names, and what the older ones do not know.

Tools are checked as draft 2020-12 has it. A schema of an older draft is rewritten for that (`promptools.schema.forms`)
unless it says the same in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from promptools.schema.shapes import is_object

if TYPE_CHECKING:
    from promptools.types import Schema

Draft = Literal[4, 6, 7, 2019, 2020]

URIS: dict[Draft, str] = {
    4: "http://json-schema.org/draft-04/schema#",
    6: "http://json-schema.org/draft-06/schema#",
    7: "http://json-schema.org/draft-07/schema#",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
LATEST: Draft = 2020

_BY_PLACE: dict[str, Draft] = {uri.rstrip("#").partition("://")[2]: draft for draft, uri in URIS.items()}
_NEW: dict[Draft, frozenset[str]] = {
    6: frozenset(("const", "contains", "propertyNames")),
    7: frozenset(("else", "if", "then")),
    2019: frozenset(
        (
            "$recursiveRef",
            "dependentRequired",
            "dependentSchemas",
            "maxContains",
            "minContains",
            "unevaluatedItems",
            "unevaluatedProperties",
        )
    ),
    2020: frozenset(("$dynamicRef", "prefixItems")),
}
UNKNOWN: dict[Draft, frozenset[str]] = {
    draft: frozenset[str]().union(*(words for since, words in _NEW.items() if since > draft)) for draft in URIS
}
"""Keywords that assert nothing in a draft, because a later one brought them."""
BESIDE_REFERENCES = frozenset(
    ("$comment", "$defs", "$ref", "$schema", "default", "definitions", "deprecated", "description", "examples", "title")
)
"""What is read beside a `$ref` up to draft 7, where all else is ignored: remarks, and what may be referred to."""


def draft_of(schema: Any) -> Draft:
    """Return the draft that a schema names under `$schema`; the latest for none, and for one that nobody knows."""
    named = schema.get("$schema") if is_object(schema) else None
    if not isinstance(named, str):
        return LATEST
    return _BY_PLACE.get(named.strip().rstrip("#/").partition("://")[2], LATEST)


def same_in_latest(node: Schema, draft: Draft) -> bool:
    """Whether the keywords of one schema of a draft, each well formed in the latest, say the same there."""
    if draft == LATEST:
        return True
    if not UNKNOWN[draft].isdisjoint(node) or (draft == 4 and "id" in node):
        return False
    return draft == 2019 or "$ref" not in node or BESIDE_REFERENCES.issuperset(node)
