"""A proxy with extensions under uvicorn, what is asked of it, and words that none of them may show."""

from contextlib import contextmanager

import httpx
from serving import serving

from promptools.profiles import Config
from promptools.proxy import Proxy

SECRETS = ("sk-client-secret", "the user's own words", "the model's own words", "Reykjavik")
HELLO = {"model": "m", "messages": [{"role": "user", "content": SECRETS[1]}]}
WEATHER = {
    **HELLO,
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "get_weather",
                "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
            },
        }
    ],
}
KEY = {"authorization": f"Bearer {SECRETS[0]}"}
FENCED = '```json\n{"tool": "get_weather", "arguments": {"city": "Reykjavik",}}\n```'


@contextmanager
def proxied(server, *extensions, **settings):
    """A proxy with these extensions, and a client of it."""
    proxy = Proxy(base_url=server.url, config=Config(), detect=False, extensions=extensions, **settings)
    with serving(proxy) as port, httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=300, headers=KEY) as client:
        yield client


def ask(client, body=HELLO, path="/v1/chat/completions", **headers):
    return client.post(path, json=body, headers=headers)
