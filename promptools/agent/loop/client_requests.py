"""What the loop sends through a client: messages as dicts, and the options and observers of promptools' own clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from promptools.errors import UsageError
from promptools.json_values import is_object
from promptools.transport import Session, intercept
from promptools.transport.session import as_observers

if TYPE_CHECKING:
    from promptools.exchange import Observer


def as_messages(messages: Iterable[Any]) -> list[dict[str, Any]]:
    """Return messages as dicts; the SDK's message objects are accepted too."""
    return [_as_dict(message) for message in messages]


def with_options(create: dict[str, Any], options: Mapping[str, Any], session: Any) -> dict[str, Any]:
    """Return the parameters of requests with options for one of our clients; for another client, as they are.

    What the client or the request itself says is kept. Unless they say otherwise, calls whose arguments do not fit are
    returned, so that the model gets the error as a tool result.
    """
    if session is None:
        return create
    unset = {name: value for name, value in options.items() if session.settings.get(name) is None}
    malformed = {} if "on_malformed" in session.settings else {"on_malformed": "call"}
    body: dict[str, Any] = create.get("extra_body") or {}
    ours: Any = body.get("promptools") or {}
    if not is_object(ours):  # the client reports it
        return create
    merged = {**malformed, **unset, **ours}
    return {**create, "extra_body": {**body, "promptools": merged}} if merged else create


def mode_of(create: Mapping[str, Any], session: Any) -> object:
    """Return the mode in which one of our clients asks for tools; None if it is not fixed, or for another client."""
    if session is None:
        return None
    body: Mapping[str, Any] = create.get("extra_body") or {}
    ours: Any = body.get("promptools")
    return (is_object(ours) and ours.get("mode")) or session.settings.get("mode")


def with_observers(client: Any, observers: Sequence[Observer]) -> Any:
    """Return a copy of one of our clients, or of a wrapped one, that these observers follow besides its own."""
    session: Session = client.promptools.with_settings(
        {"observer": [*as_observers(client.promptools.settings.get("observer")), *observers]}
    )
    copied = client.with_options()
    copied.__dict__["_client"] = intercept(copied.__dict__["_client"], session)
    copied.__dict__["promptools"] = session
    return copied


def _as_dict(message: Any) -> dict[str, Any]:
    if isinstance(message, Mapping):
        return dict(cast("Mapping[str, Any]", message))
    dump = getattr(message, "model_dump", None)
    if dump is None:
        raise UsageError(f"a message is {message!r}; expected a dict or one of the SDK's message objects")
    plain: dict[str, Any] = dump(exclude_none=True)
    return plain
