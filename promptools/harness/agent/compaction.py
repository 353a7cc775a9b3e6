"""Shorten a conversation that does not fit into the context, in stages.

    reasoning         all but the latest turns lose their reasoning
    results           results of all but the latest turns are shortened, and then shortened once more
    summary           all but the latest turns are replaced by a summary that the model writes
    latest results    results of the latest turns are shortened too; those of the last turn only if necessary

Compaction begins when a prompt is about to take up too much of the context. It goes on until there is room for many
more turns, because each compaction makes the server's cache of the prompt useless, and each summary costs a request.
Old turns that take up little room are summarized only as a last resort. If they were always summarized, and the latest
turns alone were too long, each step would request another summary, which would free hardly any room.

The instructions, the task and the latest turns stay. A turn is an assistant message with the results of its calls. A
turn is kept or summarized as a whole, so that no result loses its call.

`Compaction` holds the settings. `Compactor` applies the stages until the conversation is estimated to fit. The estimate
starts from the size of the last prompt, which `ContextCapture` recorded.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from promptools.errors import UsageError
from promptools.exchange.upstream import available_context
from promptools.harness.agent.run_events import CompactionEvent, CompactionStage
from promptools.numbers import as_count
from promptools.wire.chat_decoder import REASONING_FIELDS
from promptools.wire.json_body import split_content

if TYPE_CHECKING:
    from collections.abc import Sequence

    from promptools.exchange import ExchangeEnd, ObservedExchange, SentRequest
    from promptools.exchange.observer import Received
    from promptools.harness.agent.conversation import Conversation


Message = dict[str, Any]
SUMMARY_INSTRUCTIONS = (
    "Summarize the work that an assistant has done so far on the task below, so that it can go on from your summary"
    " alone. Keep every fact that is still needed: what was found out, with exact names, paths, numbers and error"
    " messages; what was changed; what failed; what is left to do. Do not go on with the task yourself."
)
IMAGE_LEFT_OUT = "[an image was left out here]"
IMAGE_CHARACTERS = 4000
"""Assumed size of an image in characters. It corresponds to about 1,000 tokens, the cost of a large image in vision
models."""
SUMMARY_HEADING = "Summary of the work so far:"
LEAST_RESULT = 100
"""Minimum length, in characters, to which a result is shortened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compaction:
    """The settings that decide when and how a conversation is shortened."""

    context: int | None = None
    """The size of the model's context in tokens. None means the size from the config or from detection; both need one
    of promptools' clients. If a prompt does not fit and the server's error states a size, that size is used."""
    threshold: float = 0.8
    """The share of the context that a prompt may fill. Beyond this share, the conversation is shortened."""
    target: float = 0.5
    """The share of the context into which a shortened conversation should fit."""
    keep_turns: int = 4
    """The number of latest turns that are kept unchanged, unless they alone are too long."""
    result_characters: int = 2000
    """The length in characters to which a long result is shortened. If the conversation then still exceeds the target,
    results are shortened to a quarter of this length."""
    summarise: bool = True
    """Whether the model is asked for a summary, in a separate request."""

    def __post_init__(self) -> None:
        if not 0 < self.threshold <= 1:
            raise UsageError(f"Compaction.threshold is {self.threshold!r}; expected a share between 0 and 1")
        if self.target <= 0:
            raise UsageError(f"Compaction.target is {self.target!r}; expected a share between 0 and the threshold")
        if self.keep_turns < 1 or self.result_characters < LEAST_RESULT:
            raise UsageError("Compaction keeps one turn at least, and 100 characters of a result")


def size(messages: Sequence[Message]) -> int:
    """Return the size of messages in characters; a size in tokens would need a tokenizer."""
    return sum(len(_flat(message)) for message in messages)


def latest_turns(messages: Sequence[Message], turns: int) -> int:
    """Return the position at which the last `turns` turns begin.

    A turn is an assistant message with the results of its calls. If there are fewer turns, return the position of the
    first turn; if there is no turn, return the number of messages.
    """
    starts = [at for at, message in enumerate(messages) if message.get("role") == "assistant"]
    return starts[-turns] if len(starts) >= turns else starts[0] if starts else len(messages)


def without_reasoning(messages: Sequence[Message], end: int) -> list[Message]:
    """Return the messages; those before position `end` lose their reasoning."""
    return [
        {key: value for key, value in message.items() if key not in REASONING_FIELDS} if at < end else message
        for at, message in enumerate(messages)
    ]


def with_short_results(messages: Sequence[Message], start: int, end: int, characters: int) -> list[Message]:
    """Return the messages, with each result at a position from `start` to `end` (exclusive) shortened.

    Each of these results keeps about `characters` characters, and a note replaces its images.
    """
    return [
        {**message, "content": shorten(_text(message, IMAGE_LEFT_OUT), characters)}
        if start <= at < end and message.get("role") == "tool"
        else message
        for at, message in enumerate(messages)
    ]


def shorten(text: str, characters: int) -> str:
    """Shorten a text to about `characters` characters: replace its middle with a notice. A short text is unchanged."""
    if len(text) <= characters:
        return text
    room = characters - len(_cut_notice(len(text)))
    head = room // 2
    tail = room - head
    return f"{text[:head]}{_cut_notice(len(text) - room)}{text[len(text) - tail :]}"


def _cut_notice(left_out: int) -> str:
    return f"\n[... {left_out} characters were left out here ...]\n"


def old_messages(messages: Sequence[Message], task: int, end: int) -> list[int]:
    """Return the positions of messages before `end` that a summary may replace.

    These are all messages except the instructions at the beginning and the task.
    """
    first = next(
        (at for at, message in enumerate(messages) if message.get("role") not in {"system", "developer"}), len(messages)
    )
    return [at for at in range(first, end) if at != task]


def is_summary(message: Message) -> bool:
    """Return whether a message is a summary from an earlier compaction."""
    content = message.get("content")
    return message.get("role") == "user" and isinstance(content, str) and content.startswith(SUMMARY_HEADING)


def summary_request(messages: Sequence[Message], task: int, old: Sequence[int], characters: int) -> list[Message]:
    """Return the messages that ask for a summary of the messages at the positions `old`.

    The old messages are shortened so that they and the task have about `characters` characters in total. But each old
    message keeps at least 200 characters, and the task is not shortened.
    """
    asked = _text(messages[task], IMAGE_LEFT_OUT) if task >= 0 else ""
    share = max(200, (characters - len(asked)) // max(1, len(old)))
    work = "\n\n".join(shorten(_as_text(messages[at]), share) for at in old)
    return [
        {"role": "system", "content": SUMMARY_INSTRUCTIONS},
        {"role": "user", "content": f"The task:\n{asked}\n\nThe work so far:\n{work}"},
    ]


def with_summary(messages: Sequence[Message], task: int, old: Sequence[int], summary: str) -> tuple[list[Message], int]:
    """Replace the old messages with a summary, placed after the task; return the messages and the task's position."""
    dropped = set(old)
    made: Message = {"role": "user", "content": f"{SUMMARY_HEADING}\n{summary}"}
    before = [message for at, message in enumerate(messages) if at not in dropped and at <= max(task, old[0] - 1)]
    after = [message for at, message in enumerate(messages) if at not in dropped and at > max(task, old[0] - 1)]
    return [*before, made, *after], (len(before) - 1 if task >= 0 else -1)


def _text(message: Message, image: str) -> str:
    """Return a message's text, followed by the string `image` for each image in the message."""
    text, images = split_content(message.get("content"))
    return "\n".join([*filter(None, [text]), *([image] * len(images))])


def _as_text(message: Message) -> str:
    calls = [f"{call['function']['name']}({call['function']['arguments']})" for call in message.get("tool_calls") or ()]
    parts = [*filter(None, [_text(message, IMAGE_LEFT_OUT)]), *calls]
    return f"[{message.get('role')}] " + "\n".join(parts)


def _flat(message: Message) -> str:
    """Return a text about as long as the message is in a prompt; `IMAGE_CHARACTERS` spaces stand for each image."""
    thought = "".join(str(message.get(key) or "") for key in REASONING_FIELDS)
    images = len(split_content(message.get("content"))[1])
    return thought + _as_text(message) + " " * (IMAGE_CHARACTERS * images)


# Stage by stage.


AskSummary: TypeAlias = Callable[[list[dict[str, Any]]], Generator[Any, Any, str]]
"""A generator function that sends the given messages to the model, by yielding effects of the loop, and returns the
summary. An empty text means that there is no summary."""
MOST_TOKENS = 1.0
"""Assumed maximum number of tokens per character. In most writing systems, a character takes less than one token."""
LAST = 0
STEPS: tuple[tuple[CompactionStage, int], ...] = (
    ("reasoning", 1),
    ("results", 1),
    ("results", 4),
    ("summary", 1),
    ("latest results", 1),
    ("latest results", LAST),
    ("summary", LAST),
)
"""The stages in order, each with a number.

In the stage `results`, long results are shortened to `result_characters` divided by this number. A stage with the
number `LAST` is applied only if the conversation still does not fit after the stages before it. In all other cases the
number has no effect.
"""


class Compactor:
    """Shortens a conversation. The size in tokens is estimated from the last prompt whose tokens the server counted.

    Text that was added or removed since that prompt is counted in characters, and converted to tokens by the ratio of
    tokens to characters in that prompt. The counted prompt also contains the definitions of tools and the text of the
    chat template, which make up most of the prompt of a short conversation and inflate the ratio. The ratio is
    therefore limited to `MOST_TOKENS`.
    """

    def __init__(
        self,
        settings: Compaction,
        conversation: Conversation,
        ask_summary: AskSummary,
        detected: ContextCapture | None = None,
    ) -> None:
        self.settings = settings
        self._known_context = settings.context
        self._detected = detected
        self._conversation = conversation
        self._ask_summary = ask_summary
        self._counted: tuple[int, int] | None = None
        """The number of tokens in the last prompt whose tokens the server counted, and the number of characters in the
        messages of that prompt; None if there is no such prompt."""

    @property
    def context(self) -> int | None:
        """The context size in tokens: as stated by a server's error or the app, else as detected; None if unknown."""
        return self._known_context or (self._detected.size if self._detected else None)

    def learn(self, prompt_tokens: int | None, characters: int, context: int | None = None) -> None:
        """Record the size of a prompt in tokens and in characters, and the size of the context if it is given."""
        if prompt_tokens and characters:
            self._counted = prompt_tokens, characters
        self._known_context = context or self._known_context

    @property
    def is_due(self) -> bool:
        """Whether the conversation probably fills more of the context than the setting `threshold` allows."""
        return self._fits(self.settings.threshold) is False

    def compact(self) -> Generator[Any, Any, bool]:
        """Shorten the conversation until it is estimated to fit; return whether anything changed."""
        changed = summarised = False
        for stage, detail in STEPS:
            if detail == LAST and changed and self._fits(self.settings.threshold):
                return True
            if stage == "summary":
                if summarised or not (detail == LAST or self._is_worth_summary):
                    continue
                summarised = True
            before = size(self._conversation.messages)
            messages, task = yield from self._apply(stage, detail)
            after = size(messages)
            if after >= before:
                continue
            self._conversation.replace(messages, task)
            yield CompactionEvent(stage, before, after)
            changed = True
            if self._fits(min(self.settings.target, self.settings.threshold)) is not False:
                return True
        return changed

    @property
    def _is_worth_summary(self) -> bool:
        """Whether a summary of the turns before the latest ones would make room for several more steps."""
        if self.context is None or self._counted is None:
            return True
        messages, settings = self._conversation.messages, self.settings
        old = old_messages(messages, self._conversation.task, latest_turns(messages, settings.keep_turns))
        tokens = size([messages[at] for at in old]) * self._tokens_per_character
        return tokens >= self.context * (settings.threshold - settings.target) / 2

    def _apply(self, stage: CompactionStage, detail: int) -> Generator[Any, Any, tuple[list[dict[str, Any]], int]]:
        messages, task = self._conversation.messages, self._conversation.task
        latest, characters = latest_turns(messages, self.settings.keep_turns), self.settings.result_characters
        match stage:
            case "reasoning":
                return without_reasoning(messages, latest), task
            case "results":
                return with_short_results(messages, 0, latest, max(characters // detail, LEAST_RESULT)), task
            case "latest results":
                end = len(messages) if detail == LAST else latest_turns(messages, 1)
                return with_short_results(messages, latest, end, characters), task
            case _:
                return (yield from self._summarise(latest))

    def _summarise(self, latest: int) -> Generator[Any, Any, tuple[list[dict[str, Any]], int]]:
        messages, task = self._conversation.messages, self._conversation.task
        old = old_messages(messages, task, latest)
        if not self.settings.summarise or all(is_summary(messages[at]) for at in old):
            return messages, task
        room = size(messages) // 2
        if self.context and self._counted:
            room = int(self.context * self.settings.threshold / self._tokens_per_character / 2)
        summary = yield from self._ask_summary(summary_request(messages, task, old, room))
        return with_summary(messages, task, old, summary) if summary else (messages, task)

    def _fits(self, share: float) -> bool | None:
        """Return whether the conversation probably fits into the fraction `share` of the context; None if unknown."""
        if self.context is None or self._counted is None:
            return None
        tokens, characters = self._counted
        added = size(self._conversation.messages) - characters
        return tokens + added * self._tokens_per_character <= self.context * share

    @property
    def _tokens_per_character(self) -> float:
        assert self._counted is not None
        tokens, characters = self._counted
        return min(tokens / characters, MOST_TOKENS)


# An observer that keeps two facts from the exchange: the tokens of the last prompt, and the size of the context.


class ContextCapture:
    """An observer of one run that keeps the size of the model's context, and the size of the last prompt.

    It relies on the fact that a run sends one request at a time.
    """

    def __init__(self) -> None:
        self.size: int | None = None
        """The size of the context in tokens, from the config or as detected; None if it is unknown."""
        self.prompt_tokens: int | None = None
        """Number of tokens in the last prompt; None if unknown. A reply's `usage` may state a higher number, because it
        adds up the prompts of all attempts."""
        self._bytes = 0

    @property
    def last_prompt(self) -> dict[str, int]:
        """Number of `tokens` and `bytes` in the last prompt.

        The dict is empty unless promptools rendered the prompt and the server counted its tokens.
        """
        return {"tokens": self.prompt_tokens, "bytes": self._bytes} if self.prompt_tokens and self._bytes else {}

    def began(self, exchange: ObservedExchange) -> None:  # noqa: ARG002 - the protocol's
        """Forget the previous prompt."""
        self.prompt_tokens, self._bytes = None, 0

    def sent(self, exchange: ObservedExchange, sent: SentRequest) -> None:  # noqa: ARG002
        """Record the size of the context in tokens, and the size of the prompt in bytes."""
        if sent.tool_request is not None:
            self.size = available_context(sent.tool_request)
        prompt = sent.prepared.prompt.content if sent.prepared is not None and sent.prepared.prompt else ()
        self._bytes = len(prompt.encode("utf-8", "surrogatepass")) if isinstance(prompt, str) else 0

    def received(self, exchange: ObservedExchange, received: Received) -> None:
        """Do nothing, because the tokens are known only when the exchange ends."""

    def ended(self, exchange: ObservedExchange, end: ExchangeEnd) -> None:  # noqa: ARG002
        """Record the number of tokens in the last attempt's prompt."""
        usage = end.attempts[-1].attempt.usage if end.attempts else None
        self.prompt_tokens = as_count((usage or {}).get("prompt_tokens"))
