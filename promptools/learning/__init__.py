"""Learn a dialect from a chat template: the format of a model's calls, by comparing renderings of conversations.

    from promptools.learning import learn
    learned = learn(render, name="acme")     # render(messages, tools, **options) -> str
    print(learned.toml)

`renderings` finds the calls in what a template writes, `candidates` makes tables of them, `declared_parsing` makes them
of what the model's config says, and `validation` keeps only one that reads and writes calls that it has not seen.
Nothing is registered here. docs/why/learned-dialects.md says how it decides.
"""

from __future__ import annotations

from promptools.learning.learned import Learned, learn
from promptools.learning.renderings import Renderer

__all__ = ["Learned", "Renderer", "learn"]
