"""The drafts of JSON Schema: which one a schema declares, and which keywords the older ones lack.

Arguments are validated by draft 2020-12. A schema of an older draft is rewritten to that
(`promptools.schema.documents.normalize`) unless it means the same in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from promptools.schema.documents.json_guards import is_object

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

_BY_URI: dict[str, Draft] = {uri.rstrip("#").partition("://")[2]: draft for draft, uri in URIS.items()}
_INTRODUCED: dict[Draft, frozenset[str]] = {
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
UNKNOWN_KEYWORDS: dict[Draft, frozenset[str]] = {
    draft: frozenset[str]().union(*(keywords for since, keywords in _INTRODUCED.items() if since > draft))
    for draft in URIS
}
"""Keywords that assert nothing in a draft, because a later one introduced them."""
REF_SIBLINGS = frozenset(
    ("$comment", "$defs", "$ref", "$schema", "default", "definitions", "deprecated", "description", "examples", "title")
)
"""What may accompany a `$ref` up to draft 7, where other siblings are ignored: annotations and definitions."""


def draft_of(schema: Any) -> Draft:
    """Return the draft that a schema declares under `$schema`; the latest if it declares none, or an unknown one."""
    uri = schema.get("$schema") if is_object(schema) else None
    if not isinstance(uri, str):
        return LATEST
    return _BY_URI.get(uri.strip().rstrip("#/").partition("://")[2], LATEST)


def same_in_latest(node: Schema, draft: Draft) -> bool:
    """Whether a schema's own keywords, well formed in the latest draft, mean the same there as in `draft`."""
    if draft == LATEST:
        return True
    if not UNKNOWN_KEYWORDS[draft].isdisjoint(node) or (draft == 4 and "id" in node):
        return False
    return draft == 2019 or "$ref" not in node or REF_SIBLINGS.issuperset(node)
