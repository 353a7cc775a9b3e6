"""Replies in a format whose messages have headers: reasoning, content and calls are separate messages.

From the first header on, the dialect's splitter takes all text and yields segments (`promptools.parsing.parts`):
`MessageStart`, `Content` and `MessageEnd` for a message, and `Outside` for text outside. `MessageRouter` routes them:

    reasoning           to the output, verbatim
    content             to an engine that parses it as prose, since models put calls of other dialects there; in the
                        answer, a call counts only if it is the whole answer
    the text of a call  to the argument streamer, and at the message's end as a whole to the argument parser
    another role        dropped; if the assistant has spoken before, everything after this message is dropped too

The header of a call is emitted with its first text. Text before the first header is ambiguous until a header shows
whether the text was reasoning; `decided` is true once no later header can change this.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Literal, assert_never

from promptools.dialects.calls.call_streamer import ArgumentStreamer
from promptools.dialects.calls.json_body import as_invalid_json, call_part, read_arguments
from promptools.dialects.calls.parse_options import Evidence, ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.contract import trace_entry
from promptools.engine.candidates import QUOTED
from promptools.errors import clip
from promptools.parsing.parts import Content, MessageEnd, MessageStart, Outside, Part, Segment, total_length
from promptools.types import Fix, ParseAttempt, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from promptools.dialects.contract import Dialect
    from promptools.engine.machine import Engine
    from promptools.harmony.tokens import Piece
    from promptools.parsing.emitter import Emitter

COMPLETE_REASONS = frozenset(("stop", "tool_calls", "function_call"))
"""Finish reasons that show that a reply is complete, even if its last message has no end token.

An end token is not required, because servers leave it out of the text.
"""


class MessageRouter:
    """Routes the segments of a reply (headers, content, ends of messages) to the output, in order.

    `new_engine` makes the engine that parses the content of a message. It takes two arguments: the offset of the
    content, and whether calls count only if they are the whole content. `in_header` says that the reply begins inside a
    header.
    """

    def __init__(
        self,
        dialect: Dialect,
        options: ParseOptions,
        out: Emitter,
        new_engine: Callable[[int, bool], Engine],
        *,
        in_header: bool,
    ) -> None:
        assert dialect.channels is not None
        self._format = dialect.channels
        self._splitter = self._format.make_splitter(options, in_header)
        self._dialect = dialect
        self._options = options
        self._out = out
        self._new_engine = new_engine
        self._engine: Engine | None = None
        self._open_message: MessageStart | None = None
        self._call_text: list[str] = []
        self._streamer: ArgumentStreamer | None = None
        self._sources = options.sources
        self._maybe_quoted = False
        """Whether the current call may be quoted from the conversation. If so, it is emitted only as a whole."""
        self._calls_are_definite = True
        """Whether calls remain calls, no matter what text follows them."""
        self._after_quoted_call = False
        """Whether the last call was quoted. If so, the white space after it is text."""
        self._expected = in_header or options.expect == dialect.name
        self._assistant_began = False
        """Whether the assistant has begun a message."""
        self._addressed_user = False
        """Whether the assistant has addressed the user: in a message, or with text before a call.

        If so, a later answer does not turn the earlier text into reasoning.
        """
        self._has_reasoning = False
        """Whether the assistant has begun a reasoning message. If so, text without a header is not reasoning."""
        self._outside_space: list[str] = []
        """Held white space outside of messages. It is text only if text or a call precedes it, and text follows it."""
        self._noted_fixes: tuple[Fix, ...] = ()
        self._other_role = False
        """Whether a message of another role has begun after one of the assistant's.

        If so, the model made up the rest of the reply, which is left out.
        """
        self._offset = 0

    @property
    def decided(self) -> bool:
        """Whether it is certain that the text so far is not reasoning: no later header can change that."""
        return self._addressed_user or self._has_reasoning

    def feed(self, text: str) -> None:
        """Feed a chunk of text."""
        self._route(self._splitter.feed(text), None)

    def feed_pieces(self, pieces: Iterable[Piece]) -> None:
        """Feed pieces of text whose control tokens are already identified."""
        self._sources = None  # a known control token is never a quote
        self._route(self._splitter.feed_pieces(pieces), None)

    def close(self, finish_reason: str | None) -> None:
        """Signal the end of the text. `finish_reason` is the finish reason from the server."""
        self._route(self._splitter.close(cut=finish_reason in (None, "length")), finish_reason)
        self._discard_outside_space()
        self._end_prose(finish_reason)

    def _route(self, segments: list[Segment], finish_reason: str | None) -> None:
        for segment in segments:
            if self._other_role:
                self._out.add_discarded(segment.raw, "result")
            else:
                self._route_one(segment, finish_reason)
            self._offset += len(segment.raw)

    def _route_one(self, segment: Segment, finish_reason: str | None) -> None:
        is_text = isinstance(segment, Outside) and segment.kind in ("words", "space")
        if self._outside_space and not (is_text and (self._out.is_after_call or self._out.has_text)):
            self._discard_outside_space()
        match segment:
            case MessageStart():
                self._begin_message(segment)
            case Content(raw):
                self._add_content(raw)
            case MessageEnd():
                self._end_message(segment, finish_reason)
            case Outside(_, raw, fixes) if self._open_message is not None and self._open_message.kind == "call":
                # a second <|message|> before the arguments is emitted with them, like the header
                self._open_message = self._open_message._replace(
                    raw=self._open_message.raw + raw, fixes=(*self._open_message.fixes, *fixes)
                )
            case Outside("space", raw) if not self._after_quoted_call:
                self._outside_space.append(raw)
            case Outside(kind, raw, fixes):
                if kind == "words" or kind == "space":  # noqa: PLR1714  mypy does not narrow `in`
                    space, self._outside_space = "".join(self._outside_space), []
                    self._feed_prose(space + raw, self._offset - len(space))
                else:
                    self._end_prose(None)
                    self._out.add_discarded(raw, kind)
                if fixes != self._noted_fixes:  # the fixes of a text that comes in several chunks are added once
                    self._noted_fixes = fixes
                    for fix in fixes:
                        self._out.record.add_fix(fix)
            case _:
                assert_never(segment)

    # --- messages ------------------------------------------------------------------------------------------------

    def _begin_message(self, opened: MessageStart) -> None:
        self._end_prose(None)
        self._noted_fixes, self._after_quoted_call = (), False
        if not self._assistant_began and self._out.at_start:
            self._out.accept_before_header()
        self._open_message = opened
        if opened.kind == "other" and self._assistant_began:
            self._other_role = True
            self._out.add_discarded(opened.raw, "result")
            self._add_fixes(opened)
            return
        if opened.final and not self._addressed_user and not self._has_reasoning and self._out.has_text:
            self._out.reclassify_as_reasoning("")
        self._has_reasoning = self._has_reasoning or opened.kind == "thoughts"
        self._assistant_began = self._assistant_began or opened.kind != "other"
        self._addressed_user = self._addressed_user or (opened.kind == "words" and not opened.ambiguous)
        self._addressed_user = self._addressed_user or (opened.kind == "call" and self._out.has_text)
        if opened.kind == "call":
            self._call_text = []
            self._maybe_quoted = self._sources is not None and self._sources.may_contain_prefix(opened.raw)
            takes_text = self._format.takes_text is not None and self._format.takes_text(opened.name, self._options)
            live = self._expected and not self._maybe_quoted and not takes_text
            self._streamer = ArgumentStreamer(self._options, opened.name) if live else None
            return
        zone: Literal["text", "reasoning"] = "reasoning" if opened.kind == "thoughts" else "text"
        self._out.add_message_boundary(opened.raw, zone, delimited=opened.delimited)
        if opened.kind != "other":
            self._out.separate_messages(zone)
        self._add_fixes(opened)

    def _add_fixes(self, opened: MessageStart) -> None:
        """Record the fixes to a message that is not a call; they concern the reply as a whole."""
        if opened.kind == "other":
            what = f"a made-up result of {clip(opened.name, 60)!r}" if opened.name else "a message of somebody else's"
            self._out.record.add_fix(Fix("marker", f"{self._dialect.name}: {what} was left out"))
        elif not self._expected:
            became = "reasoning" if opened.kind == "thoughts" else "content"
            self._out.record.add_fix(Fix("marker", f"{self._dialect.name}: the markers around {became} were taken out"))
        for fix in opened.fixes:
            self._out.record.add_fix(fix)

    def _add_content(self, raw: str) -> None:
        assert self._open_message is not None
        match self._open_message.kind:
            case "thoughts":
                self._out.add_text(raw)
            case "words" if self._open_message.text_only or (self._open_message.final and self._options.json_answer):
                self._out.add_text(raw)
            case "words":
                self._feed_prose(raw, self._offset)
            case "call":
                if not self._call_text and not self._maybe_quoted:
                    self._out.add_message_boundary(
                        self._open_message.raw, "text", delimited=self._open_message.delimited
                    )
                self._call_text.append(raw)
                if self._streamer is not None:
                    for early in self._streamer.feed(raw):
                        self._out.emit_early(early)
            case _:  # another role speaks
                self._out.add_discarded(raw, "result" if self._open_message.name else "debris")

    def _end_message(self, ended: MessageEnd, finish_reason: str | None) -> None:
        opened, self._open_message = self._open_message, None
        assert opened is not None
        if opened.kind == "call":
            opened = opened._replace(fixes=(*opened.fixes, *ended.fixes))
            if self._maybe_quoted and self._is_quotation(opened, ended):
                self._write_quoted(opened, ended)
                return
            # vLLM, llama.cpp and Ollama leave `<|call|>` out of the text.
            self._parse_arguments(
                opened, done=ended.complete or (finish_reason in COMPLETE_REASONS and not ended.in_header)
            )
        self._end_prose(None if ended.complete else finish_reason)
        self._out.add_message_boundary(ended.raw, "text", delimited=opened.delimited)

    def _is_quotation(self, opened: MessageStart, ended: MessageEnd) -> bool:
        """Return whether a call is quoted from the conversation. If not, emit the call's header, which was held."""
        assert self._sources is not None
        if ended.complete and self._sources.contain_call("".join((opened.raw, *self._call_text, ended.raw))):
            return True
        if self._call_text:
            self._out.add_message_boundary(opened.raw, "text", delimited=opened.delimited)
        return False

    def _write_quoted(self, opened: MessageStart, ended: MessageEnd) -> None:
        """Write a call that is quoted from the conversation.

        If text precedes the call, the call is written as text. If not, the call is tentative: it becomes text if text
        follows.
        """
        raw = "".join((opened.raw, *self._call_text, ended.raw))
        if self._out.has_text:
            at = self._out.record.offset
            self._out.add_text(raw)
            span = Span(at, at + len(raw))
            self._out.record.add_try(ParseAttempt(self._dialect.name, span, "text", QUOTED, len(raw)))
        else:
            self._calls_are_definite = False
            if self._call_text:  # without arguments the header itself is the call's text
                self._out.add_parts([Part("markup", opened.raw)], definite=False)
            self._parse_arguments(opened, done=True)
            self._out.add_parts([Part("markup", ended.raw)], definite=False)
            self._calls_are_definite = True
        self._after_quoted_call = True

    def _parse_arguments(self, opened: MessageStart, *, done: bool) -> None:
        """Parse the arguments of a call whose message has ended; `done` is False if the message was cut off."""
        raw = "".join(self._call_text)
        live, self._streamer, self._call_text = self._streamer, None, []
        evidence = Evidence(self._dialect.name, wrapped=True, expected=True)
        part = self._odd_arguments(opened, raw, evidence, done=done)
        if part is not None:
            self._emit([part], opened)
            return
        read = read_arguments(opened.name, raw, self._options, evidence, ended=done, content_follows=True)
        parts: list[Part] = []
        at = 0
        for result, end in zip(read.calls, read.ends, strict=True):
            outcome = live.reconcile(result) if live is not None and not parts else result
            part = call_part(outcome, raw[at:end] or opened.raw)
            parts.append(as_invalid_json(part, self._dialect.name) if done else part)
            at = end
        self._emit(parts, opened)
        if at < len(raw):
            self._feed_prose(raw[at:], self._offset)

    def _odd_arguments(self, opened: MessageStart, raw: str, evidence: Evidence, *, done: bool) -> Part | None:
        """Return the call if its arguments are not JSON; None if the arguments must be read as JSON.

        If the arguments are plain text that was cut off, the call is malformed.
        """
        if self._format.read_body is not None:
            outcome = self._format.read_body(opened.name, raw, self._options, evidence, ended=done)
            if outcome is not None:
                return call_part(outcome, raw or opened.raw)
        if not done and raw.strip()[:1] not in ("{", "[", '"'):
            # plain text may be a whole argument, but not a part of an argument or of a header
            reason = "the text ended before its arguments"
            malformed = malformed_call("truncated", reason, evidence.dialect, opened.name)
            return Part("malformed", raw or opened.raw, malformed=malformed)
        return None

    def _emit(self, parts: list[Part], opened: MessageStart) -> None:
        for part in parts:
            if part.call is not None and opened.fixes:
                part.call = replace(part.call, fixes=(*opened.fixes, *part.call.fixes))
        self._out.add_parts(parts, definite=self._calls_are_definite)
        size = total_length(parts)
        at = self._out.record.offset
        attempt = trace_entry(self._dialect.name, size, parts)
        self._out.record.add_try(
            ParseAttempt(attempt.strategy, Span(at - size, at), attempt.outcome, attempt.why, attempt.cost)
        )

    # --- prose ---------------------------------------------------------------------------------------------------

    def _discard_outside_space(self) -> None:
        space, self._outside_space = "".join(self._outside_space), []
        if space:
            self._end_prose(None)
            self._out.add_discarded(space, "space")

    def _feed_prose(self, raw: str, at: int) -> None:
        """Parse text inside or outside of a message as prose. `at` is the offset of the text in the reply."""
        if self._engine is None:
            # gpt-oss writes JSON into its answers, also JSON that looks like a call of an offered tool (vllm#22337)
            alone = self._open_message is not None and self._open_message.final
            self._engine = self._new_engine(at, alone)
        self._engine.feed(raw)

    def _end_prose(self, finish_reason: str | None) -> None:
        prose, self._engine = self._engine, None
        if prose is not None:
            prose.finish(finish_reason)
