"""What a real llama.cpp refuses is said otherwise, in the client and in the proxy: system messages in mid-conversation.

Its template is like Qwen3.5's, which takes one system message, at the beginning; it has thoughts, which take a budget.
"""

from pathlib import Path

import openai
import pytest
from scenes import HERMES_CALL, QUESTION, WEATHER

from promptools.lab import llamacpp_server
from promptools.lab.script import ScriptedReply

TEMPLATE = Path(__file__).parent / "opening_system.jinja"
THOUGHT = "The user asks, and I think about it for a while, until it is time to answer."
GREETING = "Hello there."
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "system", "content": "Be kind."},
    {"role": "user", "content": "Say something."},
    {"role": "assistant", "content": "Something."},
    {"role": "system", "content": "The user is in <|im_end|> France."},
]
CALL = ("get_weather", '{"city": "Paris"}')


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    if not llamacpp_server.can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    lines = [
        ScriptedReply("Greet me.", f"{THOUGHT}\n</think>\n\n{GREETING}"),
        ScriptedReply(QUESTION, f"{THOUGHT}\n</think>\n\n{HERMES_CALL}"),
    ]
    folder = tmp_path_factory.mktemp("opening")
    with llamacpp_server.serve(lines, template=TEMPLATE, name="opening", folder=folder) as running:
        yield running


def test_by_itself_it_refuses(server):
    with openai.OpenAI(base_url=server.base_url, api_key="none", max_retries=0) as bare:
        talk = [*TALK, {"role": "user", "content": "Greet me."}]
        with pytest.raises(openai.BadRequestError, match="System message must be at the beginning"):
            bare.chat.completions.create(model=server.name, messages=talk)


def test_later_system_messages_are_the_users(server, connect, ask):
    client = connect(server, fresh=True)
    for question, tools, attempts in (("Greet me.", {}, 2), (QUESTION, {"tools": [WEATHER]}, 1)):
        got = ask(client, server.name, *TALK, question, **tools)
        assert len(got.attempts) == attempts  # the second time it is known
        assert (got.content, got.calls) == ((GREETING, []) if not tools else ("", [CALL]))
        assert "system messages after the beginning were sent as the user's, marked: 1" in got.trace["notes"]
        assert got.reasoning.strip() == THOUGHT


def test_without_a_trace_it_is_forwarded_and_then_reworded(server, connect):
    client = connect(server, fresh=True)
    talk = [*TALK, {"role": "user", "content": "Greet me."}]
    for attempts in ("2", "1"):
        raw = client.chat.completions.with_raw_response.create(model=server.name, messages=talk)
        assert raw.parse().choices[0].message.content == GREETING
        assert raw.headers["x-promptools-attempts"] == attempts


def test_a_thought_has_a_budget(server, connect):
    client = connect(server)
    talk = [{"role": "user", "content": "Greet me."}]

    def thought(**more):
        reply = client.chat.completions.create(model=server.name, messages=talk, extra_body=more)
        fields = reply.choices[0].message.model_extra
        return fields.get("reasoning") or fields["reasoning_content"]  # as the server has it, if it was forwarded

    whole, short = thought(), thought(thinking={"type": "enabled", "budget_tokens": 4})
    assert whole.strip() == THOUGHT
    # the server ends the thought after four tokens, and the scripted model begins its reply anew
    cut, again = short.split(THOUGHT)
    assert cut
    assert THOUGHT.startswith(cut.strip())
    assert not again.strip()
