"""The pipeline from text or token ids to items: tokenizer, stripped headers, state machine, misplaced tools."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from promptools.errors import clip
from promptools.harmony.control_tokens import TOKEN_IDS, Role
from promptools.harmony.parsing.header import IsTool
from promptools.harmony.parsing.items import ContentChunk, HarmonyEnd, HarmonyStart, Item
from promptools.harmony.parsing.message_machine import MessageMachine
from promptools.harmony.parsing.stripped_headers import StrippedHeaderFinder
from promptools.harmony.parsing.tokenizer import TOKEN_NAMES, HarmonyToken, HarmonyTokenizer, Piece

if TYPE_CHECKING:
    from promptools.harmony.bpe_vocabulary import Decode

_OTHER_TOKENS = {TOKEN_IDS[name]: f"<|{name}|>" for name in TOKEN_IDS if name not in TOKEN_NAMES}
_TOKENS = {TOKEN_IDS[name]: HarmonyToken(name, f"<|{name}|>") for name in TOKEN_NAMES}


class Detokenizer:
    """Decodes token ids to pieces, in chunks of any size."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> Iterator[Piece]:
        """Yield the pieces of more ids; the bytes of an incomplete character are held back."""
        for token_id in ids:
            token = _TOKENS.get(token_id)
            if token is not None:
                yield from self.close()
                yield token
            elif text := self._bytes.decode(_token_bytes(token_id, self._decode)):
                yield text

    def close(self) -> Iterator[Piece]:
        """Yield what is held back of an incomplete character, as U+FFFD."""
        left = self._bytes.decode(b"", final=True)
        if left:
            yield left


class RoleCallDetector:
    """Detects calls with the tool in place of the role: only their last token tells them from the tool's result.

        <|start|>get_weather<|channel|>commentary<|message|>{"city": "Oslo"}<|call|>

    A result has a recipient, `to=assistant`, and ends with `<|end|>`; only the assistant writes `<|call|>`. So a
    message of an offered tool without a recipient is held back, and becomes a call if it ends like one. In a completion
    the end of the text is such an end, too, unless it is the result of a call before it: Ollama leaves the last
    `<|call|>` out, and a result is not what a model ends with.
    """

    def __init__(self, known: IsTool | None, *, completion: bool) -> None:
        self._known = known
        self._ends = {"call", "cut"} if completion else {"call"}
        """The ends of a call."""
        self._held: list[Item] = []

    def feed(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield the items that are certain. O(n) in their number."""
        for item in items:
            if self._held:
                self._held.append(item)
                if isinstance(item, HarmonyEnd):
                    yield from self._resolve(item)
            elif isinstance(item, HarmonyStart) and self._may_call(item):
                self._held.append(item)
            else:
                if isinstance(item, HarmonyStart) and item.header.is_call:
                    self._ends.discard("cut")
                yield item

    def close(self) -> Iterator[Item]:
        """Yield what is held back: no token ended it."""
        yield from self._held
        self._held = []

    def _may_call(self, begin: HarmonyStart) -> bool:
        header = begin.header
        return header.role == "tool" and not header.recipient and (self._known is None or self._known(header.name))

    def _resolve(self, finish: HarmonyEnd) -> Iterator[Item]:
        begin, *rest = self._held
        self._held = []
        assert isinstance(begin, HarmonyStart)
        content = next((item.raw.lstrip() for item in rest if isinstance(item, ContentChunk) and item.raw.strip()), "")
        if finish.reason in self._ends and content.startswith("{"):
            header = begin.header
            self._ends.discard("cut")
            repair = f"the tool {clip(header.name, 60)!r} in the role's place"
            called = replace(
                header, role="assistant", name="", recipient=header.name, repairs=(*header.repairs, repair)
            )
            begin = HarmonyStart(called, begin.raw)
        yield begin
        yield from rest


class ItemParser:
    """Returns items as they become certain; `promptools.harmony.StreamParser` explains the options."""

    def __init__(
        self,
        role: Role | None = None,
        *,
        strict: bool = False,
        known: IsTool | None = None,
        broken: bool = False,
        decode: Decode | None = None,
    ) -> None:
        self._tokenizer = HarmonyTokenizer(broken=broken)
        self._stripped = None if strict else StrippedHeaderFinder(known)
        self._machine = MessageMachine(role, strict=strict, known=known)
        self._role_calls = None if strict else RoleCallDetector(known, completion=role is not None)
        self._detokenizer = Detokenizer(decode) if decode is not None else None

    def feed(self, text: str) -> list[Item]:
        """Feed a chunk of text."""
        if (
            self._tokenizer.is_plain(text)
            and (self._stripped is None or self._stripped.done)
            and self._machine.feed_content(text)
        ):
            return self._certain([ContentChunk(text)])
        return self.feed_pieces(self._tokenizer.feed(text))

    def feed_ids(self, ids: Iterable[int]) -> list[Item]:
        """Feed token ids; text that only looks like a control token is text."""
        assert self._detokenizer is not None, "a parser that is fed ids needs decode="
        return self.feed_pieces(self._detokenizer.feed(ids))

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Item]:
        """Feed pieces whose control tokens are known: text that only looks like one is text."""
        finder = self._stripped
        if finder is not None:
            pieces = (replaced for piece in pieces for replaced in finder.feed(piece))
        return self._certain(self._machine.feed(pieces))

    def close(self, *, cut: bool = False) -> list[Item]:
        """End the text, and return the remaining items; `cut`: the server cut it off."""
        left = self._detokenizer.close() if self._detokenizer is not None else ()
        items = self.feed_pieces([*left, *self._tokenizer.close()])
        if self._stripped is not None:
            items += self._certain(self._machine.feed(self._stripped.close()))
        items += self._certain(self._machine.close(cut=cut))
        return [*items, *self._role_calls.close()] if self._role_calls is not None else items

    def _certain(self, items: Iterable[Item]) -> list[Item]:
        return list(self._role_calls.feed(items) if self._role_calls is not None else items)


def _token_bytes(token: int, decode: Decode) -> bytes:
    """Return the bytes of a token that does not structure messages; for another control token, its name."""
    try:
        return decode(token)
    except KeyError:
        return _OTHER_TOKENS.get(token, f"<|reserved_{token}|>").encode()
