"""Parse text or token ids of Harmony into items: the beginning, the content and the end of each message.

    between --<|start|>--> header --<|message|>--> content --<|end|>, <|call|>, <|return|>--> between

`MessageMachine` is this state machine. It reads text and control tokens, even if tokens are missing, doubled or
misplaced. `ItemParser` is the whole pipeline, of which the machine is one step.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from promptools.errors import BadHeader, MissingSentinel, clip
from promptools.harmony.messages import (
    ASSISTANT,
    HEADER_DEBRIS,
    HEADER_PARTS,
    MAX_HEADER,
    Aside,
    ContentChunk,
    HarmonyEnd,
    HarmonyStart,
    IsTool,
    Item,
    addressed_header_end,
    has_routing,
    header_end,
    is_spaced,
    may_be_header,
    opening_bracket,
    parse_header,
    speaker_start,
    words_start,
)
from promptools.harmony.quotes import HeldQuote, QuotedTokens, may_end_content
from promptools.harmony.stripped_headers import StrippedHeaderFinder
from promptools.harmony.tokens import (
    MESSAGE_ENDS,
    TOKEN_IDS,
    TOKEN_NAMES,
    HarmonyToken,
    HarmonyTokenizer,
    HeldPieces,
    Piece,
    Role,
    raw_text,
)

if TYPE_CHECKING:
    from promptools.harmony.bpe_vocabulary import Decode


# The state machine.
#
# In strict mode, any transition other than those above raises an error. In lenient mode every transition is read in
# some way, and a repair names it:
#
#     between   text is held (`_held`) while it may be a header without its first token; if it turns out not to be a
#               header, the state is `astray`: text that belongs to no message, until the next token
#     header    parts are held until `<|message|>`; without that, the header ends before the bracket of
#               the arguments, or after its known parts if it is cut off or too long (`MAX_HEADER`)
#     content   text is emitted as it comes; a suffix that may be `assistant` is held in `_tail`, since it would be the
#               first word of a header without `<|start|>`. Tokens shown as code are text (`quotes`)
#     quotes    a token in a string or in quotation marks: it is text if these are closed after it. The token and what
#               follows are held in `_quote` until that is clear
#     doubt     `<|channel|>` in content: either text, or a header where `<|end|>` and `<|start|>` are missing. The
#               token and what follows are held until that is clear
#
# Invariant: the raw text of all items (`messages.Item`) tiles what was fed.


STRIPPED_TOKENS = "its control tokens were stripped"
_CHANNEL = "<|channel|>"
MAX_REREAD = 8
"""Maximum number of times that a character may be read again, on average.

Text is read again if a token in quotes turns out to end the content.
"""


class MessageMachine:
    """A state machine that turns text and control tokens into the items of messages.

    `role` is the default for a header that names no role, as when a completion begins inside the assistant's header.
    `known` returns whether a recipient is an offered tool; it is None if the tools are unknown.
    """

    def __init__(self, role: Role | None = None, *, strict: bool = False, known: IsTool | None = None) -> None:
        self._role: Role | None = role
        self._strict = strict
        self._known = known
        self._offset = 0
        """The offset of the current piece, in characters."""
        self._state: Literal["between", "astray", "header", "content", "quotes", "doubt"] = (
            "header" if strict and role else "between"
        )
        self._held = HeldPieces()
        """The header so far, or text that may be a header."""
        self._tail = ""
        """The end of the text if it may begin a header: `assistant`, or the first letters of this word."""
        self._is_empty = False
        """Whether the message has no content yet."""
        self._is_spaced = False
        """Whether the header had a space after each token. If so, a space before the content belongs to the header."""
        self._quoted_tokens = QuotedTokens(known)
        self._quote: HeldQuote | None = None
        """A token in quotes that may end the content, and the text after it; None if no token is held."""
        self._reread = 0
        """Number of characters that were read again because a token in quotes ended the content."""
        self._is_trial = False
        """Whether this machine only reads the rest of a reply on trial (see `_read_trial`)."""
        self._before_first_message = True
        """Whether no message has begun yet."""
        self._repairs: list[str] = []
        self._turn_over = False
        """Whether `<|return|>` or `<|endoftext|>` ended the reply. Text after these tokens is debris."""

    def feed(self, pieces: Iterable[Piece]) -> Iterator[Item]:
        """Feed text and control tokens; yield the items that can no longer change. O(n) in characters.

        In strict mode, raises `MissingSentinel` or `BadHeader` at the first deviation from the format.
        """
        for piece in pieces:
            yield from self._token(piece) if isinstance(piece, HarmonyToken) else self._text(piece)
            self._offset += len(raw_text(piece))

    def close(self, *, cut: bool = False) -> Iterator[Item]:
        """Signal the end of the text, and yield the remaining items.

        `cut` says that the server cut the text off, so that a string may be unfinished.
        """
        while self._quote is not None:
            yield from self._leave_quotes(self._quote.close(self._read_trial, cut=cut or self._is_trial))
        match self._state:
            case "between" | "astray":
                yield from self._emit_aside()
            case "header":
                yield from self._end_unfinished_header("header", "")
            case _:  # content, or doubt
                yield from self._end_content("cut", "")

    def feed_content(self, text: str) -> bool:
        """Feed text without control tokens if it is certainly content; return whether it was fed.

        This is a fast path for most text. If the text was fed, the caller emits it as one `ContentChunk`.
        """
        if self._state != "content" or self._tail or self._is_spaced or not text:
            return False
        if not self._strict and speaker_start(text) < len(text):
            return False
        self._is_empty = False
        self._quoted_tokens.feed(text)
        self._offset += len(text)
        return True

    # --- text ----------------------------------------------------------------------------------------------------

    def _text(self, text: str) -> Iterator[Item]:
        match self._state:
            case "content":
                yield from self._content(text)
            case "astray":
                yield from self._stray_text(text)
            case "header":
                self._hold(text)
                yield from self._check_header_end()
            case "between":
                yield from self._between(text)
            case "quotes":
                yield from self._in_quotes(text)
            case _:  # doubt
                self._hold(text)
                yield from self._check_addressed_header()

    def _content(self, text: str) -> Iterator[Item]:
        if self._is_spaced:
            self._is_spaced = False
            if text.startswith(" "):
                yield Aside("space", " ")
                text = text[1:]
        content = self._hold_suffix(text)
        if content:
            yield self._emit_content(content)

    def _emit_content(self, raw: str) -> ContentChunk:
        self._is_empty = False
        self._quoted_tokens.feed(raw)
        return ContentChunk(raw)

    def _stray_text(self, text: str) -> Iterator[Item]:
        """Emit text outside of messages, except for a suffix that may be the first word of a header."""
        certain = self._hold_suffix(text)
        if certain:
            yield Aside("debris" if self._turn_over else "words", certain)

    def _hold(self, piece: Piece) -> None:
        self._held.add(piece, self._offset)

    def _hold_suffix(self, text: str) -> str:
        """Return the held text followed by `text`, without an end that may be the first word of a header.

        Such an end is held back.
        """
        text = self._tail + text
        end = len(text) if self._strict else speaker_start(text)
        self._tail = text[end:]
        return text[:end]

    def _between(self, text: str) -> Iterator[Item]:
        """Emit white space between two messages, and collect other text."""
        rest = text if self._held.pieces else text.lstrip()
        space = text[: len(text) - len(rest)]
        if space:
            yield Aside("space", space)
        if not rest:
            return
        if self._strict:
            at = self._offset + len(space)
            raise BadHeader(f"text outside of messages, at character {at}: a message begins with <|start|>")
        self._hold(rest)
        yield from self._check_addressed_header()

    def _check_addressed_header(self) -> Iterator[Item]:
        """Decide whether the held text is a header that names a recipient but lacks `<|message|>`.

        If it is, begin the message. If it is not, emit the text. If this is not clear yet, do nothing.
        """
        raw = self._held.raw
        if may_be_header(raw):
            return
        end = addressed_header_end(raw)
        if end is None:
            yield from self._header_as_content() if self._state == "doubt" else self._emit_aside(astray=True)
            return
        if self._state == "doubt":
            yield HarmonyEnd("channel", "")
            self._repairs.append("no <|end|>")
        self._repairs.append("no <|message|>")
        yield from self._begin_at(raw, end)

    def _check_header_end(self) -> Iterator[Item]:
        """End a header that lacks `<|message|>` if a bracket follows it, or if it is longer than `MAX_HEADER`."""
        if self._strict:
            if self._held.size > MAX_HEADER:
                raise MissingSentinel(
                    f"the header at character {self._held.start} has no <|message|> in {MAX_HEADER} characters"
                )
            return
        last = self._held.pieces[-1]
        assert isinstance(last, str)
        raw = self._held.raw
        at = opening_bracket(raw, len(raw) - len(last))
        if 0 <= at <= MAX_HEADER and ("<|channel|>" in raw[:at] or has_routing(raw[:at])):
            self._repairs.append("no <|message|>")
            yield from self._begin_at(raw, words_start(raw[:at], self._known))
        elif len(raw) > MAX_HEADER:
            yield from self._end_unfinished_header("cut", "")

    def _begin_at(self, raw: str, at: int) -> Iterator[Item]:
        """Begin a message whose header ends at `raw[at]` without `<|message|>`."""
        self._held.cut(at)
        yield self._begin(glued=True)
        yield from self._content(raw[at:])

    def _header_as_content(self) -> Iterator[Item]:
        raw = self._held.raw
        self._held.clear()
        self._state = "content"
        yield self._emit_content(raw)

    # --- tokens --------------------------------------------------------------------------------------------------

    def _token(self, token: HarmonyToken) -> Iterator[Item]:
        match self._state:
            case "between" | "astray":
                yield from self._token_between(token)
            case "header":
                yield from self._token_in_header(token)
            case "content":
                yield from self._token_in_content(token)
            case "quotes":
                yield from self._in_quotes(token)
            case _:  # doubt
                yield from self._token_in_doubt(token)

    def _token_between(self, token: HarmonyToken) -> Iterator[Item]:
        if token.name in MESSAGE_ENDS:
            yield from self._emit_aside()
            if self._strict:
                raise MissingSentinel(f"{_token_text(token)} at character {self._offset}, where no message is open")
            self._before_first_message = False
            yield Aside("token", token.raw)
            return
        if token.name == "start":
            yield from self._emit_aside()
        else:
            if self._strict:
                raise MissingSentinel(
                    f"{_token_text(token)} at character {self._offset}, without the <|start|> of its message"
                )
            yield from self._text_before_token()
            if not (self._before_first_message and self._role):
                self._repairs.append("no <|start|>")
        self._state = "header"
        yield from self._token_in_header(token)

    def _text_before_token(self) -> Iterator[Item]:
        """Keep text before a header's first token if it belongs to the header; otherwise emit it."""
        held = self._held.raw + self._tail
        only_begun = self._state == "astray" and held != ASSISTANT  # "such as<|message|>"
        if only_begun or header_end(held) != len(held):
            yield from self._emit_aside()
        elif held:
            self._held.clear()
            self._tail = ""
            self._hold(held)

    def _token_in_header(self, token: HarmonyToken) -> Iterator[Item]:
        if token.name == "message":
            self._hold(token)
            yield self._begin()
        elif token.name in MESSAGE_ENDS:
            yield from self._end_unfinished_header(token.name, token.raw)
        elif token.name == "start" and 0 < self._held.size <= MAX_HEADER and has_routing(self._held.raw):
            yield from self._end_unfinished_header("start", "")
            self._state = "header"
            self._hold(token)
        else:
            self._hold(token)

    def _token_in_content(self, token: HarmonyToken, *, counts: bool = False) -> Iterator[Item]:
        """Read a token inside a message's content.

        `counts` says that the token is certainly not part of the content.
        """
        if token.raw and not (counts or self._strict) and self._quoted_tokens.is_content(token.name):
            tail, self._tail = self._tail, ""
            yield self._emit_content(tail + token.raw)
        elif not counts and self._enter_quotes(token):
            return
        elif token.name in MESSAGE_ENDS:
            yield from self._end_content(token.name, token.raw)
        elif token.name == "start":
            if self._strict:
                raise MissingSentinel(f"<|start|> at character {self._offset}, inside a message that has no <|end|>")
            yield from self._end_content("start", "")
            if token.raw:
                self._repairs.append("no <|end|>")
            self._state = "header"
            self._hold(token)
        elif token.name == "message" and self._is_empty and not self._tail and not self._strict:
            yield Aside("token", token.raw)
        elif token.name == "channel" and not self._strict:
            tail, self._tail = self._tail, ""
            if tail not in {"", ASSISTANT}:
                yield self._emit_content(tail)
            elif tail:
                self._hold(tail)
            self._state = "doubt"
            self._hold(token)
        else:
            tail, self._tail = self._tail, ""
            yield self._emit_content(tail + token.raw)

    def _token_in_doubt(self, token: HarmonyToken) -> Iterator[Item]:
        raw = self._held.raw
        if token.name == "message" and has_routing(raw):
            yield HarmonyEnd("channel", "")
            self._repairs.append("no <|end|>")
            self._hold(token)
            yield self._begin()
        elif token.name in {"channel", "constrain"} and self._held.size <= MAX_HEADER and has_routing(raw):
            self._hold(token)
        else:
            yield from self._header_as_content()
            yield from self._token_in_content(token)

    # --- tokens in quotes ----------------------------------------------------------------------------------------

    def _enter_quotes(self, token: HarmonyToken) -> bool:
        """Hold a token back if it is inside open quotes, since it may be content; return whether it is held."""
        if self._strict or not may_end_content(token) or self._reread > MAX_REREAD * self._offset:
            return False
        doubt = self._quoted_tokens.doubt(self._tail, token)
        if doubt is None:
            return False
        self._quote = HeldQuote(doubt, self._tail, token, self._offset)
        self._tail, self._state = "", "quotes"
        return True

    def _in_quotes(self, piece: Piece) -> Iterator[Item]:
        """Hold a piece after a token in quotes, until the quotes are closed or can no longer be closed."""
        assert self._quote is not None
        settled = self._quote.feed(piece, self._offset)
        if settled is None:
            return
        yield from self._leave_quotes(None if settled.is_content else self._quote.first_token)
        if isinstance(piece, HarmonyToken):
            yield from self._token(piece)
        elif settled.taken < len(piece):
            yield from self._text(piece[settled.taken :])

    def _leave_quotes(self, index: int | None) -> Iterator[Item]:
        """Emit the held pieces as content up to the token that ends the content; read this token and the rest again.

        `index` is the index of that token among the held pieces; None if all the held pieces are content.
        """
        assert self._quote is not None
        held, self._quote, self._state = self._quote.held, None, "content"
        if index is None:
            yield self._emit_content(held.raw)
            return
        self._reread += held.size
        before, token = "".join(map(raw_text, held.pieces[:index])), held.pieces[index]
        assert isinstance(token, HarmonyToken)
        offset, self._offset = self._offset, held.start + len(before)
        if before:
            yield from self._content(before)
        yield from self._token_in_content(token, counts=True)
        self._offset += len(token.raw)
        yield from self.feed(held.pieces[index + 1 :])
        self._offset = offset

    def _read_trial(self, pieces: Sequence[Piece]) -> Iterator[Item]:
        """Read `pieces` on trial, supposing that the first of them, a token, ends the content; yield their items."""
        trial = MessageMachine(self._role, known=self._known)
        trial._state, trial._before_first_message, trial._is_trial = "content", False, True
        token = pieces[0]
        assert isinstance(token, HarmonyToken)
        yield from trial._token_in_content(token, counts=True)
        yield from trial.feed(pieces[1:])
        yield from trial.close()

    # --- messages ------------------------------------------------------------------------------------------------

    def _begin(self, *, glued: bool = False) -> HarmonyStart:
        raw = self._held.raw
        bare = any(isinstance(piece, HarmonyToken) and not piece.raw for piece in self._held.pieces)
        header = parse_header(self._held.pieces, self._role, self._known, glued=glued or bare)
        if self._strict and header.repairs:
            what = f"the header {clip(raw, 120)!r} at character {self._held.start}: {'; '.join(header.repairs)}"
            raise BadHeader(what, deviations=header.repairs)
        # in a header without tokens, words are misplaced only because the tokens are gone
        repairs = (STRIPPED_TOKENS,) if bare else header.repairs
        header = replace(header, repairs=(*self._repairs, *repairs))
        self._repairs, self._is_spaced = [], not header.repairs and is_spaced(self._held.pieces)
        self._held.clear()
        self._tail = ""
        self._state, self._is_empty, self._before_first_message, self._turn_over = "content", True, False, False
        self._quoted_tokens = QuotedTokens(self._known, call=header.is_call or header.role == "tool")
        return HarmonyStart(header, raw)

    def _end_content(self, by: str, raw: str) -> Iterator[Item]:
        if self._state == "doubt":
            yield from self._header_as_content()
        if self._tail:
            yield ContentChunk(self._tail)
        self._tail, self._state = "", "between"
        self._turn_over = by in {"return", "endoftext"}
        if by == "cut" and self._strict and self._role is None:
            raise MissingSentinel(f"the text ends at character {self._offset}, inside a message that has no <|end|>")
        yield HarmonyEnd(by, raw)  # type: ignore[arg-type]  # the names of tokens

    def _end_unfinished_header(self, by: str, raw: str) -> Iterator[Item]:
        """End a header that has no `<|message|>`: begin its message, or emit the header as text outside of messages.

        After a header without a recipient, the text after its known words, such as `final`, is the content.
        """
        header = self._held.raw
        if self._strict:
            then = "the text ends" if by == "header" else f"<|{by}|> follows"
            raise MissingSentinel(
                f"the header {clip(header, 80)!r} at character {self._held.start} has no <|message|>: {then}"
            )
        parts = HEADER_PARTS.match(header[: MAX_HEADER + 1])  # a fixed limit, so that chunks make no difference
        end = parts.end() if parts is not None else 0
        calls = "to=" in header[:end]
        if by == "header" and header_end(header) == len(header) and not has_routing(header):
            # the text ended inside the words of the header
            self._held.clear()
            self._repairs = []
            yield Aside("token", header)
            return
        if not has_routing(header[:end]) or (calls and by == "cut"):
            yield from self._drop_header(header, end, long=by == "cut")
            if raw:
                yield Aside("token", raw)
            return
        self._repairs.append("no <|message|>")
        if end < len(header) and not calls:  # text after a call's header is not arguments
            yield from self._begin_at(header, end)
        else:
            yield self._begin(glued=True)
            by = by if by == "cut" else "header"  # the message has no content
        if by != "cut":  # after a header that was too long, the message goes on
            yield from self._end_content(by, raw)

    def _drop_header(self, header: str, end: int, *, long: bool) -> Iterator[Item]:
        """Emit a header as text outside of messages, because no message begins with it.

        `end` is the offset after the header's known words. `long` says that the header is longer than `MAX_HEADER`. The
        rest of a long header is read like text between messages, in which another header may begin.
        """
        self._repairs = []
        if "<|start|>" in header[:end]:
            yield Aside("token", header[:end])
        elif self._role and not long and header.startswith(_CHANNEL):  # at the start of a completion, not a mention
            end = len(_CHANNEL)
            yield Aside("token", _CHANNEL)
        else:
            end = 0
        self._held.clear()
        self._state = "between"
        if long:
            yield from self._between(header[end:])
        else:
            self._hold(header[end:])
            yield from self._emit_aside()

    def _emit_aside(self, *, astray: bool = False) -> Iterator[Item]:
        """Emit the held text as text outside of messages.

        `astray` says that the text after it, up to the next control token, is outside of messages too.
        """
        text = self._held.raw + self._tail
        self._held.clear()
        self._tail = ""
        self._state = "astray" if astray else "between"
        if astray:
            yield from self._stray_text(text)
        elif text:
            debris = self._turn_over or (not self._before_first_message and HEADER_DEBRIS.fullmatch(text))
            yield Aside("debris" if debris else "words", text)


def _token_text(token: HarmonyToken) -> str:
    return f"<|{token.name}|>"


# The pipeline: tokenizer, stripped headers, state machine, misplaced tools.


_OTHER_TOKENS = {TOKEN_IDS[name]: f"<|{name}|>" for name in TOKEN_IDS if name not in TOKEN_NAMES}
_TOKENS = {TOKEN_IDS[name]: HarmonyToken(name, f"<|{name}|>") for name in TOKEN_NAMES}


class Detokenizer:
    """Decodes token ids to text and control tokens. The ids may arrive in chunks of any size."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, ids: Iterable[int]) -> Iterator[Piece]:
        """Decode more ids; yield their text and control tokens. Bytes of an incomplete character are held back."""
        for token_id in ids:
            token = _TOKENS.get(token_id)
            if token is not None:
                yield from self.close()
                yield token
            elif text := self._bytes.decode(_token_bytes(token_id, self._decode)):
                yield text

    def close(self) -> Iterator[Piece]:
        """Yield U+FFFD if bytes of an incomplete character are held back."""
        left = self._bytes.decode(b"", final=True)
        if left:
            yield left


class RoleCallDetector:
    """Detects calls in which the model wrote the tool's name where the role belongs.

        <|start|>get_weather<|channel|>commentary<|message|>{"city": "Oslo"}<|call|>

    A tool's result looks similar, but it has a recipient, `to=assistant`, and ends with `<|end|>`. Only the assistant
    writes `<|call|>`. So a message of an offered tool without a recipient is held back. The message becomes a call if
    its content begins with a brace and if it ends like a call. In a completion, the end of the text counts as the end
    of a call too, since Ollama omits the last `<|call|>`, and a model does not end with a result. After an earlier
    call, the end of the text does not count, because the message may be the result of that call.
    """

    def __init__(self, known: IsTool | None, *, completion: bool) -> None:
        self._known = known
        self._ends = {"call", "cut"} if completion else {"call"}
        """The values of `HarmonyEnd.reason` that make a held message a call."""
        self._held: list[Item] = []

    def feed(self, items: Iterable[Item]) -> Iterator[Item]:
        """Feed items; yield the items that can no longer change. O(n) in the number of items."""
        for item in items:
            if self._held:
                self._held.append(item)
                if isinstance(item, HarmonyEnd):
                    yield from self._resolve(item)
            elif not isinstance(item, HarmonyStart):
                yield item
            elif self._may_call(item):
                self._held.append(item)
            else:
                if item.header.is_call:
                    self._ends.discard("cut")
                yield item

    def close(self) -> Iterator[Item]:
        """Signal the end of the items. If a message is held back, it was never finished: yield its items unchanged."""
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
    """Parses text or token ids into the items of messages, and returns each item as soon as it can no longer change.

    `promptools.harmony.StreamParser` explains the options.
    """

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
        """Feed a chunk of text, and return the items that can no longer change."""
        if (
            self._tokenizer.is_plain(text)
            and (self._stripped is None or self._stripped.done)
            and self._machine.feed_content(text)
        ):
            return self._certain([ContentChunk(text)])
        return self.feed_pieces(self._tokenizer.feed(text))

    def feed_ids(self, ids: Iterable[int]) -> list[Item]:
        """Feed token ids, and return the items that can no longer change.

        Ordinary tokens that spell a control token, such as `<|end|>`, are text.
        """
        assert self._detokenizer is not None, "a parser that is fed ids needs decode="
        return self.feed_pieces(self._detokenizer.feed(ids))

    def feed_pieces(self, pieces: Iterable[Piece]) -> list[Item]:
        """Feed text and control tokens, and return the items that can no longer change.

        Text that looks like a control token stays text.
        """
        finder = self._stripped
        if finder is not None:
            pieces = (replaced for piece in pieces for replaced in finder.feed(piece))
        return self._certain(self._machine.feed(pieces))

    def close(self, *, cut: bool = False) -> list[Item]:
        """Signal the end of the text, and return the remaining items. `cut` says that the server cut the text off."""
        left = self._detokenizer.close() if self._detokenizer is not None else ()
        items = self.feed_pieces([*left, *self._tokenizer.close()])
        if self._stripped is not None:
            items += self._certain(self._machine.feed(self._stripped.close()))
        items += self._certain(self._machine.close(cut=cut))
        return [*items, *self._role_calls.close()] if self._role_calls is not None else items

    def _certain(self, items: Iterable[Item]) -> list[Item]:
        return list(self._role_calls.feed(items) if self._role_calls is not None else items)


def _token_bytes(token: int, decode: Decode) -> bytes:
    """Return the bytes of an ordinary token.

    For a control token that does not structure messages, return the bytes of the token's text.
    """
    try:
        return decode(token)
    except KeyError:
        return _OTHER_TOKENS.get(token, f"<|reserved_{token}|>").encode()
