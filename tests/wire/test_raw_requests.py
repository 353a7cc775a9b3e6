"""Chat Completions bodies for raw endpoints: every parameter has its fate."""

from typing import get_args, get_type_hints

import pytest

from promptools.profiles.profile import Raw
from promptools.wire import raw_endpoints
from promptools.wire.parameters import PARAMETERS, apply_rules, rule_for
from promptools.wire.raw_endpoints import END_OF_TURN_TOKENS, RawPrompt, stop_strings

STOP = ["<|return|>", "<|call|>"]
STOP_IDS = (200002, 200012)
PROMPT = RawPrompt("<|start|>assistant", 999, stops=tuple(STOP), preserved=("<|channel|>", "<|call|>"))
IDS = RawPrompt((200006, 173781), 999, stop_ids=STOP_IDS)
BARE = {"model": "m"}


def vllm(**more):
    prompt = RawPrompt("<|start|>assistant", 999, stop_ids=STOP_IDS)
    return raw_endpoints.encode_completions_request({**BARE, **more}, prompt, ids=True)


def test_ids_are_asked_for_with_what_reads_them():
    prompt = RawPrompt((200006, 173781), 999, lambda _: b"a")
    for given in ({}, {"return_token_ids": False}):
        assert (
            raw_endpoints.encode_completions_request({**BARE, **given}, prompt, ids=True).body["return_token_ids"]
            is True
        )
    assert "return_token_ids" not in vllm(return_token_ids=True).body


def lmstudio(**more):
    return raw_endpoints.encode_completions_request({**BARE, **more}, PROMPT, ids=False)


def llama(**more):
    return raw_endpoints.encode_llamacpp_request({**BARE, **more}, PROMPT)


def ollama(num_ctx=None, **more):
    return raw_endpoints.encode_generate_request({**BARE, **more}, PROMPT, num_ctx=num_ctx)


WRITE = {"completions": lmstudio, "llamacpp": llama, "generate": ollama}


def test_a_plain_request():
    assert vllm().body == {
        "model": "m",
        "prompt": "<|start|>assistant",
        "max_tokens": 999,
        "stop_token_ids": [200002, 200012],
        "skip_special_tokens": False,
        "spaces_between_special_tokens": False,
        "add_special_tokens": False,
    }
    assert lmstudio().body == {"model": "m", "prompt": "<|start|>assistant", "max_tokens": 999, "stop": STOP}
    assert llama().body == {
        "model": "m",
        "prompt": "<|start|>assistant",
        "stop": STOP,
        "preserved_tokens": ["<|channel|>", "<|call|>"],
    }
    assert ollama().body == {
        "model": "m",
        "prompt": "<|start|>assistant",
        "raw": True,
        "stream": False,
        "truncate": False,
        "options": {"stop": STOP},
    }
    for write in (vllm, *WRITE.values()):
        assert write().notes == ()


def test_a_prompt_of_ids():
    assert raw_endpoints.encode_completions_request(BARE, IDS, ids=True).body["prompt"] == [200006, 173781]
    assert raw_endpoints.encode_llamacpp_request(BARE, IDS).body["prompt"] == [200006, 173781]


def test_every_parameter_of_openai_has_its_fate():
    from openai.types.chat import completion_create_params as params

    known = {*get_type_hints(params.CompletionCreateParamsBase), "stream"}
    assert known <= set(PARAMETERS)


def test_every_fate_is_one_that_is_carried_out():
    for key, row in PARAMETERS.items():
        for endpoint in get_args(Raw):
            what = rule_for(key, endpoint)
            assert what is getattr(row, endpoint)
            assert bool(what.reason) == (what.handling in {"dropped", "needless"}), key
            assert not (what.handling == "option" and endpoint != "generate"), key
            assert not what.target or what.handling in {"kept", "option"}, key
            assert not what.harmless or what.handling == "dropped", key


@pytest.mark.parametrize("endpoint", get_args(Raw))
@pytest.mark.parametrize("key", PARAMETERS)
def test_every_parameter_meets_its_fate(key, endpoint):
    what = rule_for(key, endpoint)
    value = ["x"] if key == "stop" else {"x": 1} if key == "options" else 7
    written = WRITE[endpoint](**{key: value})
    options = written.body.get("options", {})
    match what.handling:
        case "kept" if key == "options":
            assert options == {"x": 1, "stop": STOP}
        case "kept":
            assert written.body[what.target or key] == value
        case "option":
            assert options[what.target or key] == (["x", *STOP] if key == "stop" else value)
        case "dropped":
            assert written.notes == (f"not sent: {key}; {what.reason}",)
        case "shaped" if key == "stop":
            assert written.body["stop"] == ["x", *STOP]
    if what.handling != "dropped":
        assert written.notes == ()
    if what.handling in {"written", "needless", "dropped"}:
        assert key not in written.body
        assert key not in options


@pytest.mark.parametrize(
    ("key", "value"),
    [("logprobs", False), ("top_logprobs", 0), ("store", False), ("service_tier", "auto"), ("modalities", ["text"])],
)
def test_what_changes_nothing_is_dropped_without_a_word(key, value):
    for write in WRITE.values():
        assert write(**{key: value}).notes == ()


def test_null_is_as_good_as_nothing():
    for write in (vllm, *WRITE.values()):
        assert write(max_tokens=None, stop=None, user=None, logprobs=None, options=None) == write()


def test_what_is_lost_is_named_by_the_reason():
    assert vllm(grammar="x", guided_json={}, metadata={}, store=True).notes == (
        "not sent: metadata, store; it is for OpenAI's own accounts",
        "not sent: guided_json, grammar; a grammar leaves no room for the markers of calls and reasoning",
    )


def test_the_newer_limit_wins():
    both = {"max_tokens": 5, "max_completion_tokens": 6}
    assert vllm(**both).body["max_tokens"] == 6
    assert llama(**both).body["n_predict"] == 6
    assert ollama(**both).body["options"]["num_predict"] == 6


def test_keys_that_nobody_knows():
    assert vllm(cache_salt="x").body["cache_salt"] == "x"
    assert llama(cache_prompt=True).body["cache_prompt"] is True
    assert ollama(cache_salt="x").notes == ("not sent: cache_salt; Ollama does not know it",)


def test_vllm_keeps_the_requests_own_stops():
    assert vllm(stop=["x"]).body["stop"] == ["x"]
    assert vllm(stop_token_ids=[7, 200012]).body["stop_token_ids"] == [7, 200012, 200002]
    assert "stop" not in vllm().body
    assert lmstudio(stop_token_ids=[7]).body["stop_token_ids"] == [7]


def test_the_stop_strings_of_a_request_come_first():
    assert stop_strings(None, PROMPT) == STOP
    assert stop_strings("x", PROMPT) == ["x", *STOP]
    assert stop_strings(["x", 1, "<|call|>"], PROMPT) == ["x", "<|call|>", "<|return|>"]
    assert tuple(STOP) == END_OF_TURN_TOKENS
    assert stop_strings(None, IDS) == []


def test_a_prompt_without_stops_of_its_own():
    bare = RawPrompt("Hi", 999)
    assert "stop" not in raw_endpoints.encode_completions_request(BARE, bare, ids=False).body
    assert raw_endpoints.encode_llamacpp_request(BARE, bare).body["stop"] == []
    assert "stop" not in raw_endpoints.encode_generate_request(BARE, bare).body["options"]


def test_the_form_of_an_answer_goes_by_the_endpoints_own_keys():
    prompt = RawPrompt("Hi", 999, constraint={"format": "json"})
    for body in (
        raw_endpoints.encode_completions_request(BARE, prompt, ids=False).body,
        raw_endpoints.encode_llamacpp_request(BARE, prompt).body,
        raw_endpoints.encode_generate_request(BARE, prompt).body,
    ):
        assert body["format"] == "json"


def test_options_of_ollama():
    written = ollama(temperature=1, options={"temperature": 2, "num_gpu": 0, "stop": "x"}, keep_alive="1m")
    assert written.body["options"] == {"temperature": 2, "num_gpu": 0, "stop": ["x", *STOP]}
    assert written.body["keep_alive"] == "1m"
    assert ollama(options="many", temperature=1).body["options"] == "many"
    assert ollama(truncate=True, stream=True).body["truncate"] is True


def test_the_context_to_ask_ollama_for():
    assert ollama(num_ctx=8192).body["options"]["num_ctx"] == 8192
    assert ollama(8192, options={"num_ctx": 4}).body["options"]["num_ctx"] == 4


def test_what_is_kept_is_in_the_order_of_the_table():
    kept, options, notes = apply_rules({"z": 1, "temperature": 1, "model": "m"}, "completions")
    assert list(kept) == ["model", "temperature", "z"]
    assert (options, notes) == ({}, ())
