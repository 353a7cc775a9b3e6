"""A Chat Completions request as a prompt for gpt-oss: the text of the prompt, its token ids, and their number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from promptools.harmony.conversation import Options, convert
from promptools.harmony.renderer import (
    Encode,
    Message,
    Part,
    count_messages,
    estimate_tokens,
    exact_counter,
    render_messages,
)
from promptools.harmony.renderer import encode_messages as ids_of
from promptools.schema import Tools

if TYPE_CHECKING:
    from promptools.schema.tool_definition import ToolLike


def render_text(
    messages: Iterable[Mapping[str, Any]],
    tools: Tools | Iterable[ToolLike] | None = None,
    *,
    response_format: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> str:
    """Render a request as text that ends with the beginning of the reply; control tokens in content are escaped. O(n).

    Raises UsageError for a role that Chat Completions does not have, and for a result whose tool cannot be determined.
    """
    return render_messages(_converted(messages, tools, response_format, options))


def render_ids(
    messages: Iterable[Mapping[str, Any]],
    tools: Tools | Iterable[ToolLike] | None = None,
    *,
    encode: Encode,
    response_format: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> list[int]:
    """Render a request as token ids; `encode` returns the ids of ordinary text (see `load_encode`). O(n).

    Content is ordinary text, even if it looks like markup. Raises the same errors as `render_text`.
    """
    return ids_of(_converted(messages, tools, response_format, options), encode)


def count_tokens(
    messages: Iterable[Mapping[str, Any]],
    tools: Tools | Iterable[ToolLike] | None = None,
    *,
    encode: Encode | None = None,
    response_format: Mapping[str, Any] | None = None,
    options: Options | None = None,
) -> tuple[Part, ...]:
    """Return the number of tokens of each message of a request; the last number is for the reply's beginning. O(n).

    The numbers are exact with `encode`. Without it they are estimates: for prose, code and JSON 1.0 to 1.3 times the
    exact number. Raises the same errors as `render_text`.
    """
    text = render_messages(_converted(messages, tools, response_format, options))
    return count_messages(text, exact_counter(encode) if encode is not None else estimate_tokens)


def _converted(
    messages: Iterable[Mapping[str, Any]],
    tools: Tools | Iterable[ToolLike] | None,
    response_format: Mapping[str, Any] | None,
    options: Options | None,
) -> tuple[Message, ...]:
    offered = Tools.prepare(tools) or ()
    return convert(messages, offered, response_format=response_format, options=options).messages
