"""What type checkers say of a client's arguments. Nothing runs this file: `make types` checks it.

A line with an `ignore` must be refused by both checkers: one that they accept is an error, as an ignore without effect.
"""

# pyright: reportUnnecessaryTypeIgnoreComment=true

from typing import assert_type

import promptools
from promptools import AsyncOpenAI, Breaker, Config, OpenAI, http_client, ollama, wrap

client = OpenAI(
    base_url="http://localhost:8000/v1",
    api_key="none",
    timeout=30,
    provider="vllm",
    config=Config(),
    mode="prompt",
    accept=["hermes"],
    breaker=Breaker(),
    on_reply=print,
)
OpenAI(modle="prompt")  # type: ignore[call-arg]
OpenAI(mode="prompts")  # type: ignore[arg-type]
OpenAI(corrections="2")  # type: ignore[arg-type]
OpenAI(provider=1)  # type: ignore[arg-type]
OpenAI(timeout="30")  # type: ignore[arg-type]

assert_type(client.with_options(mode="native", max_retries=0), OpenAI)
client.copy(set_default_headers={"a": "b"}, hold="all")
client.with_options(hold="none")  # type: ignore[arg-type]
client.with_options(holds="all")  # type: ignore[call-arg]

also = AsyncOpenAI(mode="harmony", thoughts="keep")
assert_type(also.copy(strictness="strict"), AsyncOpenAI)
AsyncOpenAI(thoughts="all")  # type: ignore[arg-type]
AsyncOpenAI(thought="keep")  # type: ignore[call-arg]
also.copy(strictness=1)  # type: ignore[arg-type]

ollama.Client("http://localhost:11434", timeout=300, headers={"a": "b"}, mode="prompt", config=Config(), on_reply=print)
ollama.Client(hostt="x")  # type: ignore[call-arg]
ollama.Client(mode="prompts")  # type: ignore[arg-type]
ollama.Client(provider=1)  # type: ignore[arg-type]
ollama.AsyncClient(host="http://localhost:11434", hold="all", verify=False)
ollama.AsyncClient(hold="none")  # type: ignore[arg-type]
ollama.AsyncClient(holds="all")  # type: ignore[call-arg]

wrap(client, mode="prompts")  # type: ignore[arg-type]
http_client(api_key="none")  # type: ignore[call-arg]

promptools.Brekaer()  # type: ignore[attr-defined]
