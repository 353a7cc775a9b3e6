"""Learn a dialect from a chat template: compare renderings of conversations to find the format of calls.

    from promptools.learning import learn
    learned = learn(render, name="acme")     # render(messages, tools, **options) -> str
    print(learned.toml)

`renderings` finds the calls in a template's output, `candidates` derives dialect tables from these calls,
`declared_parsing` derives tables from the model's config, and `validation` accepts a table only if it reads and writes
calls that it was not derived from. Learning registers nothing. docs/why/learned-dialects.md explains the decisions.
"""

from __future__ import annotations

from promptools.learning.learned import Learned, learn
from promptools.learning.renderings import Renderer

__all__ = ["Learned", "Renderer", "learn"]
