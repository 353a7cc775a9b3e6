"""What is fed to the parser: a text, how it is cut, the tools, the options, and what is known of how it was made."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from itertools import pairwise
from typing import Any, Literal

Damage = Literal["none", "local", "any"]
"""`local`: characters of punctuation were lost or strewn in; `any`: pieces were moved, repeated, or made up."""


@dataclass(frozen=True, slots=True)
class ReplyInput:
    """One reply of a model, for the parser."""

    text: str
    dialect: str
    tools: list[dict[str, Any]] | None
    options: dict[str, Any] = field(default_factory=dict)
    finish_reason: str | None = None
    cuts: tuple[int, ...] = ()
    """Places in the text at which a piece ends; also where the text is cut short."""
    rendered: tuple[tuple[str, dict[str, Any]], ...] = ()
    """The calls that were written into the text."""
    damage: Damage = "any"
    mutations: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form, without what is as it is by default."""
        default = {each.name: each.default for each in fields(self)}
        return {key: value for key, value in asdict(self).items() if value not in (default[key], (), {})}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> ReplyInput:
        """Read what `to_json` wrote."""
        rest = dict(data)
        rest.setdefault("tools", None)
        rest["cuts"] = tuple(rest.get("cuts", ()))
        rest["rendered"] = tuple((name, given) for name, given in rest.get("rendered", ()))
        rest["mutations"] = tuple(rest.get("mutations", ()))
        return cls(**rest)

    def pieces(self) -> list[str]:
        """Return the text in the pieces that `cuts` makes of it."""
        places = [0, *sorted(min(cut, len(self.text)) for cut in self.cuts), len(self.text)]
        return [self.text[start:end] for start, end in pairwise(places)]
