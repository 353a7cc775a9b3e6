"""Whether a reply announces a call that it does not make: "Let me look at the tests:".

Only the last sentence counts, which must say that the model itself acts now. Questions, offers and conditions are
answers: an answer that is taken for an announcement costs a request, and the user an answer that was good.
"""

from __future__ import annotations

import re

NUDGE = "You announced a tool call, but made none. Make the call now, or give your final answer."
_ACTS = (
    "add|apply|call|change|check|continue|create|edit|examine|execute|explore|fetch|find|fix|inspect|invoke|list|look"
    "|modify|open|patch|query|read|rerun|review|run|search|start|test|try|update|use|verify|view|write"
)
_ANNOUNCED = re.compile(
    rf"^(?:(?:ok(?:ay)?|sure|now|next|first|then|so|great|good)\b[,.!]?\s+)*"
    rf"(?:let me|let[’']s|i[’']ll|i will|i[’']m going to|i am going to|we[’']ll|we will)\s+"
    rf"(?:(?:now|first|then|also|just|quickly|start by|begin by|go ahead and)\s+)*(?:{_ACTS})(?:ing)?\b",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+|\n+")
_SEARCHED = 400
"""Characters at the end of a reply that are searched."""
_CONDITION = re.compile(r"\b(?:if|once|when|should|unless|after|whenever) (?:you|it|this|that|the)\b|\?", re.IGNORECASE)


def announces_call(content: str) -> bool:
    """Whether the last sentence says that the model calls a tool now."""
    sentences = [part.strip(" \t*_>#-") for part in _SENTENCE_END.split(content[-_SEARCHED:].strip())]
    last = next((sentence for sentence in reversed(sentences) if sentence), "")
    return _ANNOUNCED.match(last) is not None and not _CONDITION.search(last)
