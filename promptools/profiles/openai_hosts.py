"""Which hosts are OpenAI's own, or serve its models for Azure: their API does more than Chat Completions can express.

What they enforce, such as the form of an answer, holds, so there is nothing to heal.
"""

from __future__ import annotations

from urllib.parse import urlsplit

_ENDS = ("api.openai.com", ".openai.azure.com", ".services.ai.azure.com", ".cognitiveservices.azure.com")


def is_openai_host(host: str) -> bool:
    """Whether a host is one of OpenAI's or Azure's."""
    return host.endswith(_ENDS)


def is_openai_url(url: str) -> bool:
    """Whether a URL leads to one of them; false for one that cannot be read."""
    try:
        return is_openai_host((urlsplit(url).hostname or "").lower())
    except ValueError:
        return False
