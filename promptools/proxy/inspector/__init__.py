"""The inspector: a page at `/inspect` that shows the last exchanges, and parses replies that are pasted into it.

`exchange_store` keeps exchanges, `exchange_view` and `reply_view` make the JSON that the page shows, and `static`
contains the page. Exchanges are kept in memory only.
"""

from promptools.proxy.inspector.inspector import Inspector

__all__ = ["Inspector"]
