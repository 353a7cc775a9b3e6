"""What is sent of one call while the model is still writing it.

Clients that stream want the tool's name, and the text of its arguments, before the call is complete. But what was sent
cannot be taken back, and at its end a call is repaired and coerced to the tool's schema, which may change its text. So
only what no later step can change is sent early:

1. `EarlyCallStart`: the tool is named exactly, and is not declared strict.
2. `EarlyArguments`, one or more: what `ArgumentStream` releases of the arguments as JSON.

From the first member that is anything else, the rest is sent with the complete call. Invariant: what was sent is a
prefix of the final `arguments_json`. `reconcile` restores it where a later member was repaired: it keeps the sent
prefix as the model wrote it, and makes the call malformed if that is impossible.

The arguments come from two sources: `ArgumentStreamer` has the text of a JSON object, `MemberStreamer` one member after
the other. What is sent does not depend on how the text is split into pieces.
"""

from __future__ import annotations

from promptools.dialects.calls.json_body import call_part
from promptools.dialects.calls.parse_options import ParseOptions
from promptools.dialects.calls.resolve import malformed_call
from promptools.dialects.calls.streaming.argument_completion import begin_with
from promptools.dialects.calls.streaming.argument_stream import ArgumentStream
from promptools.parsing.parts import EarlyArguments, EarlyCallStart, Part
from promptools.types import Call, Malformed, Tool


class CallStreamer:
    """The name and the arguments that were sent of one call."""

    def __init__(self, rules: ParseOptions) -> None:
        self._rules = rules
        self._tool: Tool | None = None
        self._stream = ArgumentStream(None)
        self._stopped = rules.tools is None or rules.restore is not None  # `restore` changes the arguments

    @property
    def started(self) -> bool:
        """Whether the name was sent."""
        return self._tool is not None

    def _start(self, name: str) -> list[EarlyCallStart | EarlyArguments]:
        """Send the name of an offered tool; stop if there is none, or it is strict."""
        tool = self._rules.tools.get(name) if self._rules.tools is not None else None
        if self._rules.tools is None or tool is None or tool.strict:
            self._stopped = True
            return []
        self._tool = tool
        self._stream = ArgumentStream(self._rules.tools.graph(tool.name), whole_members=True)
        return [EarlyCallStart(tool.name)]

    def _send(self, text: str) -> list[EarlyCallStart | EarlyArguments]:
        """Pass text of the arguments on, and return what may be sent now."""
        ready = self._stream.feed(text)
        return [EarlyArguments(ready)] if ready else []

    def reconcile_parts(self, parts: list[Part]) -> list[Part]:
        """Make the call among `parts` begin with what was sent of it; see `reconcile`."""
        index = next((index for index, part in enumerate(parts) if part.call is not None), None)
        if index is not None and (call := parts[index].call) is not None:
            parts[index] = call_part(self.reconcile(call), parts[index].raw)
        return parts

    def reconcile(self, outcome: Call | Malformed) -> Call | Malformed:
        """Make a call's `arguments_json` begin with what was sent of it; malformed if that is impossible.

        A call that was repaired keeps the sent prefix as the model wrote it.
        """
        if self._tool is None or not isinstance(outcome, Call):
            return outcome
        if outcome.name == self._tool.name and (call := begin_with(outcome, self._stream.sent)) is not None:
            return call
        why = "its beginning reads otherwise than the whole"
        return malformed_call("invalid_json", why, outcome.dialect, self._tool.name)
