"""Run the steps of an exchange for a command that needs only the result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from promptools.exchange import Exchange
    from promptools.exchange.state import Steps

T = TypeVar("T")


def run_exchange(steps: Steps[T]) -> T:
    """Run the generator `steps` to its end, send its requests over HTTP, and return its result.

    Redirects are not followed.
    """
    from promptools.transport import SyncDriver, installed_library

    library = installed_library()
    results: list[T] = []

    def exchange() -> Exchange:
        results.append((yield from steps))
        return None

    with library.module.Client() as http:

        def send(request: Any) -> Any:
            return http.send(request, stream=True, follow_redirects=False)

        SyncDriver(exchange(), library, send).head()
    return results[0]
