"""The inspector: a page at `/inspect` with the last exchanges and a bench for replies.

`exchange_store` keeps exchanges, `exchange_view` and `reply_view` make the JSON that the page shows, and `static` is
the page. What is kept is in memory only.
"""

from promptools.proxy.inspector.inspector import Inspector

__all__ = ["Inspector"]
