"""Harmony mode in token ids, there and back, on a real vLLM, where the vocabulary of gpt-oss is at hand.

A marker that the model spells out is text then: vLLM's own text of the reply shows no difference between the two.
"""

import itertools
from collections.abc import Iterator

import environments
import pytest
from asking import FORMS
from newcomers import WAYS, Newcomers
from rig_vllm import SPELLED, complete, events
from scenes import ANSWER, QUESTION, RESULT, WEATHER, WORDS

from promptools.harmony import bpe_vocabulary
from promptools.transport.session import local_vocabulary

pytestmark = pytest.mark.vllm

CALL = ("get_weather", '{"city": "Paris"}')
STOP = "word7 "
KINDS = ["vllm-harmony", "vllm-harmony-old"]


def forget() -> None:
    local_vocabulary.cache_clear()
    bpe_vocabulary.load_encoding.cache_clear()


@pytest.fixture(scope="module")
def newcomers(proxies, tmp_path_factory) -> Iterator[Newcomers]:
    pytest.importorskip("openai_harmony")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(bpe_vocabulary.FOLDER_VARIABLE, str(environments.path_of("o200k")))
        forget()
        assert local_vocabulary() is not None
        made = Newcomers("vllm", proxies, tmp_path_factory.mktemp)
        yield made
        made.close()
    forget()


@pytest.fixture(params=list(itertools.product(WAYS, FORMS)), ids="-".join)
def put(request, servers, newcomers):
    """Ask in harmony mode."""

    def asked(kind, *said, **keys):
        given = {"tools": [WEATHER], "options": {"mode": "harmony"}, **keys}
        got = newcomers.ask(servers[kind], *request.param, *said, **given)
        assert (got.error, got.attempts[-1]) == (None, ("harmony", "answered"))
        return got

    return asked


@pytest.mark.parametrize("kind", KINDS)
def test_the_text_of_a_reply_does_not_tell_what_its_ids_do(http, servers, kind):
    reply = complete(
        http, servers[kind], "Spell it out", max_tokens=200, skip_special_tokens=False, return_token_ids=True
    )
    (choice,) = reply.json()["choices"]
    assert choice["text"].startswith(f"<|channel|>final<|message|>{SPELLED}")
    assert [each for each in choice["token_ids"] if each >= 199_998] == [200005, 200008, 200002]


@pytest.mark.parametrize("form", [{}, {"stream": True}])
@pytest.mark.parametrize("kind", ["vllm-harmony"])
def test_ids_go_on_where_the_text_ends_before_a_stop_string(http, servers, kind, form):
    server = servers[kind]
    body = {"max_tokens": 200, "skip_special_tokens": False, "return_token_ids": True, "stop": [STOP], **form}
    reply = complete(http, server, "Say words", **body)
    told = [each for each in events(reply) if each != "[DONE]"] if form else [reply.json()]
    choices = [each["choices"][0] for each in told]
    tokens = [each for choice in choices for each in choice["token_ids"]]
    text = http.post(f"{server.url}/detokenize", json={"model": server.name, "tokens": tokens}).json()["prompt"]
    assert "".join(choice["text"] for choice in choices).endswith("word6 ")
    assert STOP in text


@pytest.mark.parametrize("kind", KINDS)
def test_a_conversation(put, kind):
    first = put(kind, QUESTION)
    assert (first.calls, first.reasoning, first.finish_reason) == ([CALL], "Need the tool.", "tool_calls")
    second = put(kind, QUESTION, first.message(), {"role": "tool", "tool_call_id": first.ids[0], "content": RESULT})
    assert (second.calls, second.content, second.finish_reason) == ([], ANSWER, "stop")


@pytest.mark.parametrize("kind", KINDS)
def test_markers_that_the_model_spells_out_are_text(put, kind):
    answer = put(kind, "Spell it out")
    assert (answer.content, answer.calls, answer.finish_reason) == (SPELLED, [], "stop")
    call = put(kind, "Spell in Paris?")
    assert (call.calls, call.reasoning) == ([("get_weather", '{"city": "Paris <|call|>"}')], "Need <|end|>.")


@pytest.mark.parametrize("kind", ["vllm-harmony"])
def test_an_answer_that_is_cut_ends_there(put, kind):
    got = put(kind, "Say words", max_tokens=20)
    assert got.finish_reason == "length"
    assert got.content
    assert WORDS.startswith(got.content)


@pytest.mark.parametrize("kind", ["vllm-harmony"])
def test_a_stop_string_ends_the_answer_before_it(put, kind):
    got = put(kind, "Say words", stop=[STOP])
    assert (got.content, got.finish_reason) == (WORDS[: WORDS.index(STOP)], "stop")


@pytest.mark.parametrize("kind", ["vllm-harmony"])
def test_several_choices(put, kind):
    got = put(kind, QUESTION, n=2, temperature=1)
    calls = [[(call.name, call.arguments) for call in choice.calls] for choice in got.choices.values()]
    assert calls == [[CALL]] * 2
