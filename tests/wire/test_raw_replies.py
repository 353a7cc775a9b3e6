"""Replies of raw endpoints as deltas, as real servers wrote them."""

import pytest

from promptools.wire import raw_endpoints
from promptools.wire.chat_decoder import Delta, Envelope

CALL = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"city": "Paris"}'

# --- /v1/completions


def vllm(**choice):
    """A reply of vLLM 0.32.0."""
    return {
        "id": "cmpl-1",
        "object": "text_completion",
        "created": 7,
        "model": "m",
        "choices": [{"index": 0, "text": "", "logprobs": None, "finish_reason": None, "stop_reason": None, **choice}],
    }


def test_vllm_says_by_which_token_the_reply_ended():
    usage = {"prompt_tokens": 22, "completion_tokens": 29, "total_tokens": 51}
    body = {**vllm(text=CALL, finish_reason="stop", stop_reason=200012), "usage": usage}
    delta, spent = raw_endpoints.decode_completions_reply(body)
    ending = {"stop_reason": 200012}
    assert delta == Delta(content=CALL + "<|call|>", finish_reason="stop", **ending, choice_extra=ending)
    assert spent == Delta(index=None, usage=usage)


@pytest.mark.parametrize(
    ("reason", "text"), [(200002, "x<|return|>"), (None, "x"), (7, "x"), ("the end", "x"), (True, "x")]
)
def test_other_ends(reason, text):
    (delta,) = raw_endpoints.decode_completions_reply(vllm(text="x", finish_reason="stop", stop_reason=reason))
    assert delta.content == text


def test_a_piece_of_a_stream():
    assert raw_endpoints.decode_completions_reply(vllm(text="<|channel|>")) == [Delta(content="<|channel|>")]
    (last,) = raw_endpoints.decode_completions_reply(vllm(text="", finish_reason="length"))
    assert last == Delta(finish_reason="length")


@pytest.mark.parametrize(
    ("told", "ids"), [([200005, 35644], (200005, 35644)), ([], ()), (None, None), (["a"], None), ("ab", None)]
)
def test_the_ids_of_a_reply(told, ids):
    (delta,) = raw_endpoints.decode_completions_reply(vllm(text="x", token_ids=told))
    assert delta == Delta(content="x", ids=ids)


def test_an_error_of_vllm():
    said = {"error": {"message": "Token id 300000 is out of vocabulary", "type": "BadRequestError", "code": 400}}
    (delta,) = raw_endpoints.decode_completions_reply(said)
    assert delta.error.message == "Token id 300000 is out of vocabulary"


# --- llama.cpp


def llama(content="", index=0, **last):
    """A reply of llama.cpp b11549, or a piece of one."""
    said = {"index": index, "content": content, "tokens": [], "stop": False, "id_slot": -1, "tokens_predicted": 1}
    ends = {"model": "m", "prompt": "...", "generation_settings": {}, "timings": {"prompt_n": 1}} if last else {}
    return {**said, **ends, **last}


ENDED = {"stop": True, "stop_type": "eos", "stopping_word": "", "tokens_predicted": 40, "tokens_evaluated": 18}
USAGE = {"prompt_tokens": 18, "completion_tokens": 40, "total_tokens": 58}


def test_a_piece_of_llamacpps():
    assert raw_endpoints.decode_llamacpp_reply(llama("<|chan", index=1)) == [Delta(index=1, content="<|chan")]


@pytest.mark.parametrize(
    ("end", "text", "finish"),
    [
        ({"stop_type": "eos"}, CALL, "stop"),
        ({"stop_type": "limit"}, CALL, "length"),
        ({"stop_type": "word", "stopping_word": "<|call|>"}, CALL + "<|call|>", "stop"),
        ({"stop_type": "word", "stopping_word": "Paris"}, CALL, "stop"),
        ({"stop_type": None}, CALL, "stop"),
    ],
)
def test_the_end_of_llamacpps(end, text, finish):
    (delta,) = raw_endpoints.decode_llamacpp_reply(llama(CALL, **{**ENDED, **end}))
    assert delta == Delta(content=text, finish_reason=finish, usage=USAGE)


def test_choices_of_llamacpp_come_as_a_list():
    first, second = raw_endpoints.decode_llamacpp_reply([llama("a", **ENDED), llama("b", index=1, **ENDED)])
    assert (first.index, first.content, second.index, second.content) == (0, "a", 1, "b")
    assert second.usage == USAGE


def test_what_stands_around_llamacpps():
    assert raw_endpoints.decode_llamacpp_envelope(llama("x")) == Envelope()
    around = Envelope(model="m", extra={"timings": {"prompt_n": 1}})
    assert raw_endpoints.decode_llamacpp_envelope(llama("x", **ENDED)) == around
    assert raw_endpoints.decode_llamacpp_envelope([llama("x", **ENDED)]) == around
    assert raw_endpoints.decode_llamacpp_envelope([]) == raw_endpoints.decode_llamacpp_envelope("x") == Envelope()


@pytest.mark.parametrize(
    "body",
    [
        {"error": {"code": 400, "message": "too long", "type": "exceed_context_size_error"}},
        {"content": "", "error": {"message": "too long"}},
        [{"error": {"message": "too long"}}],
        "too long",
    ],
)
def test_an_error_of_llamacpp(body):
    (delta,) = raw_endpoints.decode_llamacpp_reply(body)
    assert (delta.index, delta.error.message) == (None, "too long")


@pytest.mark.parametrize("body", [{}, [], None, 7])
def test_what_is_not_a_reply_of_llamacpps(body):
    assert all(delta == Delta() for delta in raw_endpoints.decode_llamacpp_reply(body))


def test_a_count_that_is_none():
    (delta,) = raw_endpoints.decode_llamacpp_reply(llama("x", stop=True))
    assert delta.usage == {"prompt_tokens": 0, "completion_tokens": 1, "total_tokens": 1}


# --- Ollama


def ollama(response="", **more):
    """A reply or a line of Ollama 0.32.15."""
    return {"model": "m", "created_at": "2026-11-21T08:03:13.555622227Z", "response": response, "done": False, **more}


LAST = {"done": True, "done_reason": "stop", "total_duration": 9, "prompt_eval_count": 18, "eval_count": 40}


def test_a_line_of_ollamas():
    assert raw_endpoints.decode_generate_reply(ollama("<|cha")) == [Delta(content="<|cha")]


def test_the_last_line_of_ollamas():
    delta, spent = raw_endpoints.decode_generate_reply(ollama(CALL, **LAST))
    assert delta == Delta(content=CALL, finish_reason="stop")
    assert spent.usage == USAGE
    (cut, _) = raw_endpoints.decode_generate_reply(ollama("", **{**LAST, "done_reason": "length"}))
    assert cut.finish_reason == "length"


def test_what_a_parser_took_out_all_the_same():
    calls = [{"function": {"name": "f", "arguments": {}}}]
    (delta,) = raw_endpoints.decode_generate_reply(ollama("", thinking="Hm.", tool_calls=calls))
    assert (delta.reasoning, delta.tool_calls[0].name) == ("Hm.", "f")


def test_what_stands_around_ollamas():
    found = raw_endpoints.decode_generate_envelope(ollama("x", thinking="x", context=[1], **LAST))
    assert (found.model, found.created > 0, found.extra) == ("m", True, {"total_duration": 9})


def test_an_error_of_ollama():
    (delta,) = raw_endpoints.decode_generate_reply({"error": "model 'nope' not found"})
    assert delta.error.message == "model 'nope' not found"
    assert raw_endpoints.decode_generate_reply({"done": True, "done_reason": "load"})[0].finish_reason == "stop"
