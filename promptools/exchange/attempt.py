"""Make one attempt: send the request in one mode, stream to the client what can no longer change, and check the reply.

`preparation` returns the function that encodes the request. In raw mode, `preparation` first has the prompt rendered.
`AttemptRunner.run` has these phases, and stops at the first that fails:

    send      no connection, or an HTTP error status                      -> Failure
    read      chunks -> deltas -> the mode's readers -> events -> client; ends at the end of the body, at the server's
              end marker, at a broken connection, an error in the body, the size limit, or a call that became malformed
              after a part of it was streamed
    judge     broken connection, error, size limit, garbled or cut body   -> Failure
    verify    each choice against the request                             -> its verdict

A failure before `verify` concerns all choices. Held text is then sent only for choices whose content the client has
already seen in part, because these choices cannot be retried.

Choices have two indexes. The server numbers the choices of each upstream request from 0. The client's request may take
several upstream requests, so its choices are numbered separately. `_client_index` maps the server's index to the
client's.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import UsageError
from promptools.exchange.effects import Failed, Opened, ResponseHead
from promptools.exchange.failures import Failure, failure_of_connection, failure_of_error, failure_of_status
from promptools.exchange.observer import WrittenChoice
from promptools.exchange.response_writer import ResponseWriter, encode_json, response_headers
from promptools.exchange.state import AttemptFacts
from promptools.exchange.upstream import ReplyDecoder, encode_request, get_header, is_stream, requested_context
from promptools.json_values import try_json
from promptools.modes.jinja_template import notes_on_unused, render_template
from promptools.modes.raw_mode import (
    beginning_in_examples,
    beginning_of_call,
    example_calls,
    prepare_conversation,
    prepare_raw,
    shows_tools,
)
from promptools.modes.registry import PREPARE
from promptools.modes.reply_reader import MAX_TRAILING_SPACE, ReplyReader
from promptools.modes.verdict import HARMONY_CALL, Verdict, judge_reply
from promptools.parsing.events import CallEnd, Reasoning, Text
from promptools.types import HealingCost, Malformed
from promptools.wire.chat_decoder import Envelope
from promptools.wire.chat_template import (
    RenderedPrompt,
    TemplateRequest,
    decode_rendered_prompt,
    encode_template_request,
    encode_tokenize_request,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from promptools.exchange.context import Context
    from promptools.exchange.passthrough import TakenReply
    from promptools.exchange.plan import AttemptPlan
    from promptools.exchange.state import ExchangeState, Steps
    from promptools.modes.prepared_request import PreparedRequest
    from promptools.modes.tool_request import ToolRequest
    from promptools.parsing.events import Event
    from promptools.types import Reply
    from promptools.wire.chat_decoder import Delta


# How the request is encoded in the mode of the plan. Raw mode has its prompt rendered first, by the server or from the
# template of the config.
#
# One request renders the conversation. If a call is required, two more requests may render calls after it, to learn
# how the template begins a call. If the prompt consists of token ids, another request turns that beginning into ids.
# Nothing is generated. A prompt is kept until the exchange ends: if another attempt or choice needs the same
# conversation, it is not rendered again. A prompt is not kept for the next exchange: templates drop the reasoning of
# earlier turns when a new turn begins, so the prompt of one turn is not the beginning of the next turn's prompt.


NO_PLACE = "Ollama's /api/chat, which renders the template, has no place for a part of the conversation"
NO_TOOLS = "the model's template does not show it the tools"
WITHOUT_RAW = (
    "leave `mode` out, or use prompt mode, which describes tools itself; or name a template that shows them"
    " (`chat_template` in the profile, see docs/reference/raw-mode.md)"
)
NO_PROMPT = "the server's answer holds no rendered prompt"


Preparation: TypeAlias = "Callable[[], PreparedRequest]"
"""A function that encodes a request in a mode; raises `UsageError` if the mode cannot express the request."""


def preparation(state: ExchangeState, plan: AttemptPlan) -> Steps[Failure | Preparation]:
    """Return the function that encodes the plan's request in its mode, or a failure if raw mode got no usable prompt.

    The function is only returned, not called, so that the caller can run it in a thread, together with other work.

    Raises `UsageError` if raw mode cannot express the request, if the config's template fails, or if the template does
    not show the tools to the model and no other mode may be tried.
    """
    request, mode = plan.request, plan.mode
    if mode != "raw":
        return partial(PREPARE[mode], request)
    conversation = yield from state.compute(partial(prepare_conversation, request))
    prompt = yield from _render(state, request, conversation)
    if isinstance(prompt, Failure):
        if prompt.kind == "no_native_tools" and not plan.has_other_modes and not state.attempts:
            raise UsageError(f"{prompt.why}, so raw mode is not possible: {WITHOUT_RAW}")
        return prompt
    return partial(prepare_raw, request, conversation, prompt)


def _render(
    state: ExchangeState, request: ToolRequest, conversation: PreparedRequest
) -> Steps[Failure | RenderedPrompt]:
    prompt = yield from _render_body(state, request, conversation.body)
    if isinstance(prompt, Failure):
        return prompt
    if not shows_tools(conversation, prompt):
        return Failure("no_native_tools", NO_TOOLS, opened=state.opened)
    return (yield from _begin_call(state, request, conversation, prompt))


def _render_body(
    state: ExchangeState, request: ToolRequest, body: Mapping[str, Any]
) -> Steps[Failure | RenderedPrompt]:
    profile = request.profile
    if profile.chat_template is not None:
        text = yield from state.compute(partial(render_template, profile.chat_template, body))
        return RenderedPrompt(text, text, notes=notes_on_unused(body))
    assert profile.template_endpoint is not None, "raw mode is offered only where a template can be rendered"
    asked = encode_template_request(body, profile.template_endpoint, num_ctx=requested_context(request))
    if asked is None:
        raise UsageError(NO_PLACE)
    answer = yield from _fetch(state, asked, request)
    if isinstance(answer, Failure):
        return answer
    prompt = decode_rendered_prompt(answer, profile.template_endpoint)
    if prompt is None:
        return Failure("no_raw", NO_PROMPT, opened=state.opened)
    return replace(prompt, notes=asked.notes)


def _begin_call(
    state: ExchangeState, request: ToolRequest, conversation: PreparedRequest, prompt: RenderedPrompt
) -> Steps[Failure | RenderedPrompt]:
    """Return the prompt; if a call is required, append the text with which calls begin, provided that it is known."""
    head = beginning_of_call(request, conversation, prompt)
    if head is None:
        head = yield from _beginning_by_template(state, request, conversation, prompt)
    if not head:
        return prompt
    if isinstance(prompt.content, str):
        return replace(prompt, content=prompt.content + head, prefill=head)
    answer = yield from _fetch(state, encode_tokenize_request(request.model, head), request)
    if isinstance(answer, Failure):
        return answer
    ids = decode_rendered_prompt(answer, "tokenize")
    if ids is None or isinstance(ids.content, str):
        return Failure("no_raw", NO_PROMPT, opened=state.opened)
    return replace(prompt, content=(*prompt.content, *ids.content), prefill=head)


def _beginning_by_template(
    state: ExchangeState, request: ToolRequest, conversation: PreparedRequest, prompt: RenderedPrompt
) -> Steps[str]:
    """Return the text with which the template begins every call; empty if this text is unknown.

    A prompt that ends with this text forces the model to call. If the text is unknown, the model is not forced; the
    reply is then only checked for the required call, as in every mode.
    """
    examples: list[RenderedPrompt] = []
    for body in example_calls(request, conversation):
        try:
            example = yield from _render_body(state, request, body)
        except UsageError:
            return ""
        if isinstance(example, Failure):
            return ""
        examples.append(example)
    return beginning_in_examples(request, prompt, examples)


def _fetch(state: ExchangeState, asked: TemplateRequest, request: ToolRequest) -> Steps[Any]:
    """Send a request that prepares the prompt; return the server's answer, parsed as JSON, or a failure.

    The kind of the failure is `no_raw` if another mode may succeed.
    """
    body = yield from state.compute(partial(encode_json, asked.body))
    answer = yield from state.fetch(body, asked.path, "raw")
    if isinstance(answer, Failed):
        failure = failure_of_connection(answer)
        return failure if state.policy.seconds_left(state.now) == 0 else replace(failure, kind="no_raw")
    if isinstance(answer, Opened):
        failure = failure_of_status(answer, (yield from state.read_error()), request.profile.raw or "completions")
        return replace(failure, kind="no_raw") if failure.kind == "refused" else failure
    return (yield from state.compute(partial(try_json, answer), max(len(answer), len(state.request.body))))


# The attempt.


AttemptOutcome: TypeAlias = "Failure | dict[int, Verdict]"
"""The failure of the whole attempt, or a verdict for each choice, except choices that a complete reply lacks."""


OVER_NOTE = f"the read was ended after a whole call and {MAX_TRAILING_SPACE} characters of white space"
CALL_FINISH_REASONS = frozenset({"tool_calls", "function_call"})


class AttemptRunner:
    """Makes one attempt to get some of a request's choices from the server; `prepare` encodes the request."""

    def __init__(
        self,
        state: ExchangeState,
        plan: AttemptPlan,
        prepare: Preparation,
        writer: ResponseWriter,
        indices: Sequence[int],
    ) -> None:
        self._state = state
        self._plan = plan
        self._writer = writer
        self.prepared = prepared = prepare()
        self._request = encode_request(prepared, plan.request)
        self._names = prepared.client_names
        self._notes = (*prepared.notes, *self._request.notes)
        new_id = state.context.new_id
        self.readers = {index: ReplyReader(plan.request, prepared, new_id) for index in indices}
        self._number = len(state.attempts) + 1
        self._client_index = dict(enumerate(indices))
        self._refused: set[int] = set()
        """The indexes of the choices in which the server sent a refusal."""
        self._open_text = 0
        self._text_size = 0
        """The number of characters of the reply so far."""
        # the server counts its choices from 0, regardless of their index for the client
        self.decoder = ReplyDecoder(
            plan.request.stream,
            self._request.wire,
            partial(_default_envelope, state.context, plan.request.model),
            choices=len(self._client_index),
            limit=state.context.max_reply,
        )

    def run(self, taken: TakenReply | None = None) -> Steps[AttemptOutcome]:
        """Send the request, read the reply, and check the reply against the request.

        `taken` is the beginning of a forwarded reply. If it is given, no request is sent. Instead, the rest of that
        reply is read, and the whole reply is checked.
        """
        if taken is not None:
            assert self._state.opened is not None, "what is taken over was opened"
            return (yield from self._run_opened(self._state.opened, taken))
        if self._request.context_limit is not None:
            self._plan.note_known_context()
        self._state.notes.extend((*self._plan.notes, *self._notes))
        self._plan.notes.clear()
        body = yield from self._state.compute(partial(encode_json, self._request.body))
        facts = AttemptFacts(self.prepared, self._plan.request, self._request.wire, len(self._client_index))
        opened = yield from self._state.send(body, self._request.path, self._plan.mode, facts)
        if isinstance(opened, Failed):
            return failure_of_connection(opened)
        if not 200 <= opened.status < 300:
            body = yield from self._state.read_error()
            if not body and self._state.policy.seconds_left(self._state.now) == 0:
                return Failure("timeout", f"the deadline passed before the text of an HTTP {opened.status} came")
            classify = partial(failure_of_status, opened, body, self._request.wire)
            failure = yield from self._state.compute(classify, len(body))
            return replace(failure, context_limit=self._request.context_limit)
        return (yield from self._run_opened(opened))

    def _run_opened(self, opened: Opened, taken: TakenReply | None = None) -> Steps[AttemptOutcome]:
        """Read the reply that follows the status and headers in `opened`, and check it against the request."""
        self.decoder.streamed = is_stream(opened.headers, asked=self._plan.request.stream)
        broke = yield from self._read(taken)
        self._state.notes.extend(f"the server's JSON was repaired: {fix}" for fix in self.decoder.fixes)
        return (yield from self._judge(opened, broke))

    def head(self) -> ResponseHead:
        """Return the status and headers of the response to the client, including the headers about this attempt."""
        opened = self._state.opened
        headers = opened.headers if opened and 200 <= opened.status < 300 else ()  # an error's are left out
        counts = self._number, len(self._state.notes), self._state.unfit_calls
        # the head of a stream may go out before the last failure
        healing = None if self._plan.request.stream else HealingCost.of(self._state.attempts)
        return ResponseHead(
            200, response_headers(headers, self._writer.content_type, self._plan.mode, *counts, healing)
        )

    def _read(self, taken: TakenReply | None) -> Steps[Failed | None]:
        """Read the reply to its end or to an error, and send the client what can no longer change.

        Returns the failure if the connection broke.
        """
        ahead = [] if taken is None else [taken.data, None] if taken.ended else [taken.data]
        while True:
            chunk = ahead.pop(0) if ahead else (yield from self._state.read())
            if isinstance(chunk, Failed):
                return chunk
            size = self.decoder.bytes_to_decode(chunk)
            work = partial(self._advance, chunk)
            data = yield from self._state.compute(work, size + self._open_text if size else 0)
            if data:
                yield from self._state.emit(data, self.head)
            # with `tool_choice: required`, llama.cpp lets the model add white space until the context is full
            if chunk is not None and self.decoder.streamed and self._is_over():
                self._state.notes.append(OVER_NOTE)
                yield from self._state.abandon()
                return None
            if chunk is None:
                return None
            if (
                self.decoder.server_error
                or self.decoder.decode_error
                or self.decoder.limit_error
                or self._live_call_failed()
            ):
                yield from self._state.abandon()
                return None
            yield from self._state.send_heartbeat()  # all chunks so far may belong to a call that is not complete yet
            if self.decoder.done:  # the server may keep the connection open: do not wait for it to close
                return None

    def _advance(self, chunk: bytes | None) -> bytes:
        """Decode the next chunk, or the end of the body (None); return what may be sent to the client now."""
        data: list[bytes] = []
        for delta in self.decoder.close() if chunk is None else self.decoder.feed(chunk):
            index = self._client_index.get(delta.index or 0)
            if index is None:
                continue
            if delta.refusal:
                self._refused.add(index)
            events = self.readers[index].feed(delta)
            self._count_open_text(delta, events)
            data.append(self._add_events(index, events, delta.logprobs))
            if self.decoder.streamed and self._is_over():
                break
        return b"".join(data)

    def _count_open_text(self, delta: Delta, events: list[Event]) -> None:
        """Count the characters since the last emitted text or call, and those of the whole reply.

        The first number matters because the parser may have to read all these characters again.
        """
        arguments = sum(len(call.arguments) for call in delta.tool_calls)
        self._open_text += len(delta.content) + arguments
        self._text_size += len(delta.content) + len(delta.reasoning) + arguments
        if events and isinstance(events[-1], (Text, Reasoning, CallEnd, Malformed)):
            self._open_text = 0

    def _add_events(self, index: int, events: list[Event], logprobs: Any = None) -> bytes:
        return self._writer.add_events(index, events, self.decoder.envelope, logprobs)

    def _is_over(self) -> bool:
        """Return whether reading may stop.

        It may stop if, in at least one choice, the model writes only white space after a call, and if every other
        choice is in the same state or has ended.
        """
        if not any(reader.may_stop for reader in self.readers.values()):
            return False
        return all(
            self.readers[index].may_stop or sent in self.decoder.finish_reasons
            for sent, index in self._client_index.items()
        )

    def _live_call_failed(self) -> bool:
        return any(self._writer.failed_live_call(index) for index in self.readers)

    def _judge(self, opened: Opened, broke: Failed | None) -> Steps[AttemptOutcome]:
        decoder = self.decoder
        if broke:
            yield from self._flush_text()
            return failure_of_connection(broke, opened, self._partial_reply)
        if decoder.server_error:
            yield from self._flush_text()
            error, partial_reply = decoder.server_error, self._partial_reply
            classify = partial(failure_of_error, error, opened, decoder.body, partial_reply, decoder.wire)
            return (yield from self._state.compute(classify, len(error.message)))
        if decoder.limit_error:
            yield from self._flush_text()
            return Failure("too_large", decoder.limit_error, opened=opened, partial_reply=self._partial_reply)
        if decoder.decode_error:
            yield from self._flush_text()
            coding = get_header(opened.headers, "content-encoding")  # no longer there if the driver decoded it
            why = f"{decoder.decode_error}; its content-encoding is {coding!r}" if coding else decoder.decode_error
            return Failure("garbled", why, opened=opened, body=decoder.body, partial_reply=self._partial_reply)
        if decoder.streamed and not (self._plan.request.stream or decoder.finish_reasons or decoder.done):
            # a server that streams although no stream was requested
            why = "the stream ended without a finish reason"
            return Failure("cut", why, opened=opened, partial_reply=self._partial_reply)
        verdicts, data = yield from self._state.compute(self._close_choices, self._text_size)
        if data:
            yield from self._state.emit(data, self.head)
        return verdicts

    def _close_choices(self) -> tuple[dict[int, Verdict], bytes]:
        """Check each choice at the end of the reply; return the verdicts, and the bytes to send to the client now."""
        decoder = self.decoder
        verdicts: dict[int, Verdict] = {}
        data: list[bytes] = []
        for sent, index in self._received_choices().items():
            finish = final_finish_reason(
                decoder.finish_reasons.get(sent), self.readers[index], self._plan.request, ended=decoder.ended
            )
            rest = self.readers[index].close(finish)
            if finish is not None or self._writer.committed(index):  # after a cut, the rest may be half a tag
                data.append(self._add_events(index, rest))
            verdicts[index] = self._verify(sent, index)
        return verdicts, b"".join(data)

    @property
    def _partial_reply(self) -> Reply:
        """The first choice of the reply, as far as it was read."""
        return next(iter(self.readers.values())).reply

    def _received_choices(self) -> dict[int, int]:
        """Return the choices to check, as a map from the server's index to the client's.

        If the reply is complete and has any choice, only the choices that the server sent are checked. In all other
        cases, every requested choice is checked, because some may have been cut off.
        """
        decoder = self.decoder
        received = {sent: index for sent, index in self._client_index.items() if sent in decoder.seen_choices}
        complete = (
            not decoder.streamed or decoder.done or bool(decoder.finish_reasons)
        )  # else the others may have been cut off
        return received if received and complete else self._client_index

    def _flush_text(self) -> Steps[None]:
        """After a broken stream, send the held text of each choice that the client has partly seen. Send no calls."""
        for index, reader in self.readers.items():
            if self._writer.committed(index):
                data = self._add_events(index, [event for event in reader.close(None) if isinstance(event, Text)])
                if data:
                    yield from self._state.emit(data, self.head)

    def _verify(self, server_index: int, index: int) -> Verdict:
        reader, decoder = self.readers[index], self.decoder
        stop = decoder.stop_reasons.get(server_index)
        return judge_reply(
            self._plan.request,
            reader.reply,
            raw=reader.raw,
            stop_reason=stop,
            usage=decoder.usage,
            mode=self._plan.mode,
            names=self._names,
            refused=index in self._refused,
            committed=self._writer.committed(index),
        )

    def written(self) -> tuple[WrittenChoice, ...]:
        """Return the text, finish reason and stop reason that the server sent for each choice."""
        decoder = self.decoder
        return tuple(
            WrittenChoice(self.readers[index].text, decoder.finish_reasons.get(sent), decoder.stop_reasons.get(sent))
            for sent, index in self._client_index.items()
            if sent in decoder.seen_choices
        )

    def envelope(self, index: int) -> Envelope:
        """Return a choice's envelope (id, model, time), with the stop reason and extra fields that the server sent."""
        decoder = self.decoder
        if not decoder.envelope.id:  # nothing was decoded: the reply was recovered from an error
            decoder.envelope = decoder.default_envelope()
        sent = next((server_index for server_index, own_index in self._client_index.items() if own_index == index), -1)
        envelope, stop_reason = decoder.envelope, decoder.stop_reasons.get(sent)
        chat = decoder.wire == "chat"
        choice = decoder.choice_extra.get(sent, {}) if chat else {}
        message = decoder.message_extra.get(sent, {}) if chat else {}
        if envelope.stop_reason == stop_reason and not choice and not message:
            return envelope
        return replace(envelope, stop_reason=stop_reason, choice_extra=choice, message_extra=message)

    def call_signalled(self, index: int) -> bool:
        """Return whether the server announced a call in this choice, by its finish reason or stop reason.

        False in harmony mode, where promptools itself parses the calls.
        """
        if self._plan.mode == "harmony":
            return False
        sent = next(server_index for server_index, own_index in self._client_index.items() if own_index == index)
        return (
            self.decoder.stop_reasons.get(sent) == HARMONY_CALL
            or self.decoder.finish_reasons.get(sent) in CALL_FINISH_REASONS
        )


def _default_envelope(context: Context, model: str) -> Envelope:
    created = int(context.wall_clock().timestamp()) if context.wall_clock is not None else 0
    return Envelope(f"chatcmpl-{context.new_id()}", model, created)


def final_finish_reason(sent: str | None, reader: ReplyReader, request: ToolRequest, *, ended: bool) -> str | None:
    """Return the finish reason for the client.

    `sent` is the finish reason that the server sent, if any. `ended` says whether the reply is complete.
    """
    if reader.may_stop and sent in {None, "length"}:
        sent = "stop"  # only white space was cut off
    if sent is None and ended:
        sent = "stop"  # some servers signal the end without a finish reason
    if sent in CALL_FINISH_REASONS and request.choice.kind == "none":
        sent = "stop"  # Ollama ignores tool_choice none; its calls are left out, its text is kept
    return sent
