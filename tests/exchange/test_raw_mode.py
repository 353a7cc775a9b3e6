"""Raw mode in a whole exchange: what is sent to be rendered, what is continued, what comes back."""

import json

import pytest
from raw_servers import (
    CALL,
    END,
    FACTS,
    FENCED,
    PARIS,
    PROMPT,
    RAW_PATHS,
    RENDER_PATHS,
    TEMPLATE,
    USAGE,
    modes,
    paths,
    prompt_of,
    rendered,
    said,
    server,
    streamed,
)
from scripted import WEATHER, Answer, ask, call, play, reply

from promptools.dialects.reply_markers import reply_markers
from promptools.exchange.ollama_api import OLLAMA_API
from promptools.modes.prepared_request import TOOL_KEYS
from promptools.profiles.profile import Raw
from promptools.wire.chat_template import TEMPLATE_KEYS
from promptools.wire.parameters import PARAMETERS, rule_for


@pytest.fixture(params=FACTS)
def kind(request):
    return request.param


# --- there and back


def test_a_call(kind):
    seen = play(ask(WEATHER), [*rendered(kind), said(kind)], target=server(kind))
    assert paths(seen) == [*([RENDER_PATHS[kind]] if kind != "file" else []), RAW_PATHS[kind]]
    assert prompt_of(seen) == PROMPT
    assert seen.message["tool_calls"][0]["function"] == PARIS
    assert seen.json["choices"][0]["finish_reason"] == "tool_calls"
    assert (seen.message["content"], seen.json["usage"]) == (None, USAGE)
    assert (seen.headers["x-promptools-mode"], seen.headers["x-promptools-attempts"]) == ("raw", "1")
    assert seen.reply.calls[0].fixes == ()
    assert modes(seen) == [("raw", "answered")]


@pytest.mark.parametrize("cut", [0, 1, 11])
def test_a_call_in_a_stream(kind, cut):
    body = ask(WEATHER, stream=True, stream_options={"include_usage": True})
    seen = play(body, [*rendered(kind), streamed(kind, "Let me see. " + CALL, cut=cut)], target=server(kind))
    choice = seen.choice()
    assert (choice.content.strip(), choice.finish) == ("Let me see.", ["tool_calls"])
    assert {key: choice.calls[0][key] for key in PARIS} == PARIS
    assert seen.events[-1]["usage"] == USAGE
    assert seen.done
    assert seen.bodies[-1]["stream"] is True
    assert seen.bodies[0].get("stream", False) is (kind == "file")


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_an_answer(kind, finish):
    seen = play(ask(WEATHER), [*rendered(kind), said(kind, "Sunny.", finish)], target=server(kind))
    assert (seen.message["content"], seen.json["choices"][0]["finish_reason"]) == ("Sunny.", finish)
    seen = play(ask(WEATHER, stream=True), [*rendered(kind), streamed(kind, "Sunny.", finish)], target=server(kind))
    assert (seen.choice().content, seen.choice().finish) == ("Sunny.", [finish])


def test_a_call_that_was_cut_is_never_handed_over(kind):
    seen = play(ask(WEATHER), [*rendered(kind), said(kind, CALL[:60], "length")], target=server(kind))
    assert "tool_calls" not in seen.message
    assert seen.json["choices"][0]["finish_reason"] == "length"


@pytest.mark.parametrize("as_stream", [False, True])
def test_reasoning_that_the_template_opens(kind, as_stream, tmp_path):
    facts = {}
    if kind == "file":
        file = tmp_path / "thinking.jinja"
        file.write_text(
            TEMPLATE.read_text().replace("assistant\n{% endif", "assistant\n<think>\n{% endif"), encoding="utf-8"
        )
        facts["chat_template"] = str(file)
    answer = (streamed if as_stream else said)(kind, "Need it.\n</think>\n\n" + CALL)
    seen = play(
        ask(WEATHER, stream=as_stream), [*rendered(kind, PROMPT + "<think>\n"), answer], target=server(kind, **facts)
    )
    assert prompt_of(seen).endswith("assistant\n<think>\n")
    assert seen.reply.reasoning.strip() == "Need it."
    assert [made.arguments for made in seen.reply.calls] == [{"city": "Paris"}]
    assert seen.reply.content.strip() == ""


KNOWN = reply_markers()
OPENED = {opener: closer for opener, closer in KNOWN.reasoning_tags.items() if closer in KNOWN.template_closers}
"""Tags of reasoning that a template may open: all but those that only prompts teach."""


@pytest.mark.parametrize("opener", OPENED)
def test_reasoning_of_every_family_that_the_template_opens(opener):
    """A call before its closing tag is a thought; after it, a call."""
    kind, closer = "llamacpp", OPENED[opener]
    for said_of, words, calls in ((f"Perhaps {CALL}", "It is cold.", 0), ("Need it.", CALL, 1)):
        answer = said(kind, f"{said_of}{closer}\n\n{words}")
        seen = play(ask(WEATHER), [*rendered(kind, PROMPT + opener), answer], target=server(kind))
        assert len(seen.reply.calls) == calls
        assert seen.reply.reasoning.strip() == said_of
        assert seen.reply.content.strip() == ("" if calls else words)


def test_reasoning_that_the_model_opens(kind):
    answer = said(kind, "<think>\nNeed it.\n</think>\n\n" + CALL)
    seen = play(ask(WEATHER), [*rendered(kind), answer], target=server(kind, in_reasoning=True))
    assert seen.message["reasoning"].strip() == "Need it.", "the prompt itself shows that nothing is open"
    assert seen.message["tool_calls"][0]["function"] == PARIS


def test_a_client_of_ollamas_own_api(kind):
    body = {"model": "m", "messages": [{"role": "user", "content": "Weather in Paris?"}], "tools": [WEATHER],
            "stream": False, "think": False, "options": {"num_predict": 50, "temperature": 0}}  # fmt: skip
    seen = play(
        body, [*rendered(kind), said(kind)], target=server(kind), url="http://server/api/chat", front=OLLAMA_API
    )
    assert seen.json["message"]["tool_calls"][0]["function"]["arguments"] == {"city": "Paris"}
    assert prompt_of(seen) == PROMPT
    sent = seen.bodies[-1]
    if kind == "ollama":
        assert sent["options"].items() >= {"num_predict": 50, "temperature": 0}.items()
    else:
        assert (sent["n_predict" if kind == "llamacpp" else "max_tokens"], sent["temperature"]) == (50, 0)


def test_a_reply_in_another_dialect_is_read_too():
    seen = play(ask(WEATHER), [*rendered("llamacpp"), said("llamacpp", FENCED)], target=server())
    assert seen.message["tool_calls"][0]["function"] == PARIS


def test_without_a_known_family():
    seen = play(ask(WEATHER), [*rendered("llamacpp"), said("llamacpp")], target=server(family=None))
    assert seen.message["tool_calls"][0]["function"] == PARIS
    assert "<tool_call>" in seen.bodies[1]["preserved_tokens"]
    assert seen.bodies[1]["stop"] == [END]


def test_gpt_oss_replies_in_harmony():
    text = "<|start|>developer<|message|>type get_weather<|end|><|start|>user<|message|>hi<|end|><|start|>assistant"
    reply_text = '<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}'
    seen = play(ask(WEATHER), [*rendered("llamacpp", text), said("llamacpp", reply_text)],
                target=server(family="gpt-oss"))  # fmt: skip
    assert seen.message["tool_calls"][0]["function"] == PARIS
    assert seen.bodies[1]["stop"] == ["<|return|>", "<|call|>"]
    assert "<|constrain|>" in seen.bodies[1]["preserved_tokens"]
    seen = play(ask(WEATHER), [*rendered("tokenize", text), said("tokenize", reply_text)],
                target=server("tokenize", family="gpt-oss"))  # fmt: skip
    assert seen.bodies[1]["stop_token_ids"] == [200002, 200012]


# --- what is sent to be rendered

HISTORY = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather in Oslo?"},
    {"role": "assistant", "content": "", "reasoning_content": "Need it.",
     "tool_calls": [call("get_weather", {"city": "Oslo"})]},
    {"role": "tool", "tool_call_id": "call00001", "content": "4 C"},
    {"role": "user", "content": "And in Paris?"},
]  # fmt: skip


def asked_to_render(name, body, **facts):
    return play(body, [*rendered(name), said(name)], target=server(name, **facts)).bodies[0]


def test_history_is_sent_as_it_is():
    body = {**ask(WEATHER), "messages": HISTORY}
    facts = {"reasoning_field": "reasoning_content"}
    for name in ("llamacpp", "tokenize"):
        assert asked_to_render(name, body, **facts)["messages"] == HISTORY
    messages = asked_to_render("ollama", body, **facts)["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "user"]
    assert messages[2]["thinking"] == "Need it."
    assert messages[2]["tool_calls"][0]["function"] == {"name": "get_weather", "arguments": {"city": "Oslo"}}
    assert (messages[3]["content"], messages[3]["tool_name"]) == ("4 C", "get_weather")


def test_what_concerns_the_template_is_sent_and_nothing_else():
    template = {"chat_template_kwargs": {"enable_thinking": False}, "documents": [{"text": "d"}],
                "reasoning_effort": "low"}  # fmt: skip
    body = ask(WEATHER, **template, temperature=0, n=1, stop="x", stream=True, tool_choice="auto")
    sent = play(body, [*rendered("llamacpp"), streamed("llamacpp")], target=server()).bodies
    assert sent[0] == {"model": "m", "messages": body["messages"], "tools": [WEATHER], **template}
    assert not sent[1].keys() & {*template, "messages", "tools", "tool_choice"}
    seen = play(body, [*rendered("tokenize"), streamed("tokenize")], target=server("tokenize"))
    kwargs = {"documents": [{"text": "d"}], "reasoning_effort": "low", "enable_thinking": False}
    assert seen.bodies[0] == {"model": "m", "messages": body["messages"], "tools": [WEATHER],
                              "chat_template_kwargs": kwargs, "return_token_strs": True}  # fmt: skip
    seen = play(body, [*rendered("ollama"), streamed("ollama")], target=server("ollama"))
    assert seen.bodies[0] == {"model": "m", "messages": body["messages"], "tools": [WEATHER], "think": "low",
                              "stream": False, "truncate": False, "_debug_render_only": True}  # fmt: skip
    assert any(note.startswith("not sent: documents") for note in seen.reply.trace.notes)


def test_the_templates_arguments_in_a_file(tmp_path):
    file = tmp_path / "t.jinja"
    file.write_text("{{ tools[0].function.name }} {{ enable_thinking }} {{ reasoning_effort }} {{ documents[0].text }}")
    body = ask(WEATHER, chat_template_kwargs={"enable_thinking": False}, reasoning_effort="low",
               documents=[{"text": "d"}], think=True)  # fmt: skip
    seen = play(body, [said("file")], target=server("file", chat_template=str(file)))
    assert prompt_of(seen) == "get_weather False low d"
    assert "not sent: think; a chat template that is rendered here has no such argument" in seen.reply.trace.notes


def test_a_message_that_is_to_be_continued():
    body = ask(WEATHER, continue_final_message=True)
    assert asked_to_render("tokenize", body)["add_generation_prompt"] is False
    assert asked_to_render("llamacpp", body)["continue_final_message"] is True


def test_what_the_render_endpoint_does_not_know_is_noted():
    body = ask(WEATHER, think=True, reasoning={"effort": "low"})
    seen = play(body, [*rendered("tokenize"), said("tokenize")], target=server("tokenize"))
    assert not seen.bodies[0].keys() & {"think", "reasoning"}
    assert "not sent: think, reasoning; /tokenize does not know it" in seen.reply.trace.notes


def test_the_context_to_ask_ollama_for_is_the_same_in_both_requests():
    seen = play(ask(WEATHER), [*rendered("ollama"), said("ollama")], target=server("ollama", num_ctx=8192))
    assert [sent["options"]["num_ctx"] for sent in seen.bodies] == [8192, 8192], "another would load the model anew"


def test_a_large_request_is_prepared_in_a_thread(kind):
    body = ask(WEATHER)
    small = play(body, [*rendered(kind), said(kind)], target=server(kind))
    body["messages"][0]["content"] = "x" * 70_000
    large = play(body, [*rendered(kind), said(kind)], target=server(kind))
    native = play(body, [reply("Sunny.")], target=server(kind, ("native",), wire="chat"))
    # the body for the template, and its rendering, or the request for it and the answer
    assert (small.computed, large.computed - native.computed) == (0, 2 if kind == "file" else 3)


def test_under_tool_choice_none_no_tools_are_shown():
    seen = play(ask(WEATHER, tool_choice="none"), [*rendered("llamacpp"), said("llamacpp", CALL)], target=server())
    assert "tools" not in seen.bodies[0]
    assert "tool_calls" not in seen.message
    assert seen.reply.trace.notes == ()


def test_tools_of_other_types_are_named_and_not_rendered():
    body = ask(WEATHER, {"type": "web_search"})
    seen = play(body, [*rendered("llamacpp"), said("llamacpp")], target=server())
    assert seen.bodies[0]["tools"] == [WEATHER]
    assert "raw mode cannot offer the tool of type 'web_search'" in seen.reply.trace.notes


def test_names_that_the_server_does_not_take_are_sent_as_others():
    odd = {"type": "function", "function": {"name": "my.tool/x", "parameters": {"type": "object"}}}
    made = '<tool_call>\n{"name": "my_tool_x", "arguments": {}}\n</tool_call>'
    seen = play(ask(odd), [*rendered("llamacpp", PROMPT.replace("get_weather", "my_tool_x")), said("llamacpp", made)],
                target=server(tool_names="[a-z_]+"))  # fmt: skip
    assert seen.bodies[0]["tools"][0]["function"]["name"] == "my_tool_x"
    assert seen.message["tool_calls"][0]["function"]["name"] == "my.tool/x"


# --- what is sent to be continued


def test_the_limit_that_vllm_needs(kind):
    sent = play(ask(WEATHER), [*rendered(kind), said(kind)], target=server(kind)).bodies[-1]
    # the server's own number goes before the profile's; bytes of a text are no tokens, and are counted with a margin
    limits = {"tokenize": 8192 - len(PROMPT), "file": 32_768 - len(PROMPT) // 2}
    assert sent.get("max_tokens") == limits.get(kind)
    sent = play(ask(WEATHER, max_completion_tokens=5), [*rendered(kind), said(kind)], target=server(kind)).bodies[-1]
    own = (
        sent["options"]["num_predict"]
        if kind == "ollama"
        else sent["n_predict" if kind == "llamacpp" else "max_tokens"]
    )
    assert own == 5


def test_the_reply_keeps_its_special_tokens():
    sent = play(ask(WEATHER), [*rendered("tokenize"), said("tokenize")], target=server("tokenize")).bodies[1]
    assert (sent["skip_special_tokens"], sent["add_special_tokens"]) == (False, False)
    sent = play(ask(WEATHER), [said("file")], target=server("file", raw_ids=True)).bodies[0]
    assert (sent["skip_special_tokens"], sent["add_special_tokens"]) == (False, True), (
        "it adds the first, which we left"
    )
    sent = play(ask(WEATHER), [*rendered("llamacpp"), said("llamacpp")], target=server()).bodies[1]
    assert {"<tool_call>", "</tool_call>", "<think>", "</think>", "<|im_end|>"} <= set(sent["preserved_tokens"])


def test_what_ends_the_turn_is_sent_after_the_requests_own(kind):
    sent = play(ask(WEATHER, stop=["x"]), [*rendered(kind), said(kind)], target=server(kind)).bodies[-1]
    stops = sent["options"]["stop"] if kind == "ollama" else sent["stop"]
    assert stops[:2] == ["x", END]


def test_sampling_goes_on(kind):
    sent = play(ask(WEATHER, temperature=0.5, seed=1), [*rendered(kind), said(kind)], target=server(kind)).bodies[-1]
    assert (sent["options"] if kind == "ollama" else sent).items() >= {"temperature": 0.5, "seed": 1}.items()


SPOKEN = {*TOOL_KEYS, "messages", "response_format"}
"""Parameters that are expressed by the prompt, or enforced here."""
VALUES = {
    "chat_template_kwargs": {"x": 7}, "options": {"x": 1}, "model": "m", "stop": ["x"],
    "reasoning": {"effort": "low"}, "reasoning_effort": "low", "stream_options": {"x": 1},
}  # fmt: skip


OF_TEMPLATES = {*TEMPLATE_KEYS} - SPOKEN - {"model"}
USED_BY_FILES = {"chat_template_kwargs", "reasoning_effort", "documents"}
OURS = {"skip_special_tokens", "spaces_between_special_tokens", "add_special_tokens"}
"""Those that we set ourselves, whatever the request says."""


def with_parameter(kind, key):
    seen = play(ask(WEATHER, **{key: VALUES.get(key, 7)}), [*rendered(kind), said(kind)], target=server(kind))
    return seen.bodies, [note for note in seen.reply.trace.notes if key in note]


@pytest.mark.parametrize("key", sorted(OF_TEMPLATES))
def test_a_parameter_of_the_template_is_used_there_or_noted(kind, key):
    bodies, notes = with_parameter(kind, key)
    asked = bodies[0] if kind != "file" else dict.fromkeys(USED_BY_FILES)
    used = key in asked or "think" in asked or key in (asked.get("chat_template_kwargs") or {})
    assert used is not bool(notes)
    assert key not in bodies[-1]


@pytest.mark.parametrize("key", sorted({*PARAMETERS} - SPOKEN - OF_TEMPLATES - {"stream", "n"}))
def test_any_other_parameter_is_sent_or_noted(kind, key):
    bodies, notes = with_parameter(kind, key)
    sent, value, rule = bodies[-1], VALUES.get(key, 7), rule_for(key, FACTS[kind]["raw"])
    assert notes == ([f"not sent: {key}; {rule.reason}"] if rule.handling == "dropped" else [])
    match rule.handling:
        case "dropped":
            assert key not in sent or key in OURS
        case "kept" if key == "options":
            assert sent["options"]["x"] == 1
        case "kept" if key == "stream_options":
            assert "stream" not in sent, "it is nothing without a stream"
        case "kept":
            assert sent[rule.target or key] == value
        case "option" if key == "stop":
            assert sent["options"]["stop"][0] == "x"
        case "option":
            assert sent["options"][rule.target or key] == value
        case "shaped":
            assert key in sent or key == "return_token_ids"
        case _:
            assert rule.handling in {"needless", "written"}


def test_no_reason_speaks_of_harmony_alone():
    reasons = {rule_for(key, endpoint).reason for key in PARAMETERS for endpoint in Raw.__args__}
    assert not [reason for reason in reasons if "Harmony" in reason]


# --- several choices


def test_choices_of_one_request():
    body = json.loads(said("llamacpp").body)
    both = Answer(200, json.dumps([body, {**body, "index": 1, "content": "Sunny.", "tokens_predicted": 4}]).encode())
    seen = play(ask(WEATHER, n=2), [*rendered("llamacpp"), both], target=server())
    first, second = seen.json["choices"]
    assert (first["finish_reason"], second["message"]["content"]) == ("tool_calls", "Sunny.")
    assert seen.json["usage"] == {"prompt_tokens": 10, "completion_tokens": 13, "total_tokens": 23}
    choices = [{"index": at, "text": text, "finish_reason": "stop"} for at, text in enumerate((CALL, "Sunny."))]
    both = Answer(200, json.dumps({"id": "c", "model": "m", "choices": choices, "usage": USAGE}).encode())
    seen = play(ask(WEATHER, n=2), [*rendered("tokenize"), both], target=server("tokenize"))
    assert [choice["finish_reason"] for choice in seen.json["choices"]] == ["tool_calls", "stop"]
    assert seen.bodies[1]["n"] == 2


def test_choices_asked_one_by_one_are_rendered_once():
    answers = [*rendered("ollama"), said("ollama"), said("ollama", "Sunny."), said("ollama", "Rain.")]
    seen = play(ask(WEATHER, n=3), answers, target=server("ollama", n=False))
    assert paths(seen) == ["/api/chat", *["/api/generate"] * 3]
    assert [choice["finish_reason"] for choice in seen.json["choices"]] == ["tool_calls", "stop", "stop"]


def test_a_choice_that_is_asked_for_again_is_not_rendered_again():
    answers = [*rendered("tokenize"), said("tokenize"), said("tokenize", "Sunny.")]
    seen = play(ask(WEATHER, n=2), answers, target=server("tokenize"))
    assert paths(seen) == ["/tokenize", "/v1/completions", "/v1/completions"]
    assert seen.json["choices"][1]["message"]["content"] == "Sunny."


@pytest.mark.parametrize("as_stream", [False, True])
@pytest.mark.parametrize(
    "after",
    [
        "<|im_end|>",
        "<|im_end|>\n",
        "<|im_end|><|endoftext|>",
        "<|im_end",
        "<|im_end|>\n<|im_start|>user\nAnd Oslo?",
        "<|im_end|><|im_start|>user\nAnd Oslo?",
        "<|im_end|>\n\n<|im_start|>assistant\n",
        "<|im_end|><|im_start|>assistant\n" + CALL,
    ],
)
def test_no_token_after_a_call_is_content(kind, after, as_stream):
    answer = (streamed if as_stream else said)(kind, f"Let me see.\n{CALL}{after}")
    seen = play(ask(WEATHER, stream=as_stream), [*rendered(kind), answer], target=server(kind))
    assert [made.arguments for made in seen.reply.calls] == [{"city": "Paris"}]
    assert (seen.reply.content, seen.reply.reasoning) == ("Let me see.", "")


# --- where the template and the family disagree


OTHERWISE = "the chat template writes calls differently from the model's dialect, 'hermes', which is kept"


@pytest.mark.parametrize(
    ("written", "noted"),
    [(CALL, 0), (CALL.replace("\n", ""), 0), (CALL.replace("tool_call", "zork"), 1), ("it was left out", 1)],
)
def test_a_template_that_writes_calls_differently_is_noted_once(written, noted):
    messages = [
        {"role": "user", "content": "Weather in Paris?"},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": PARIS}]},
        {"role": "tool", "tool_call_id": "c1", "content": "cold"},
    ]
    prompt = PROMPT.replace("<|im_start|>assistant\n", f"<|im_start|>assistant\n{written}{END}assistant\n")
    wrong = CALL.replace('"Paris"', "[1]")
    answers = [*rendered("llamacpp", prompt), said("llamacpp", wrong)] * 2
    seen = play(ask(WEATHER, messages=messages), [*answers[:3], said("llamacpp", "It is cold.")], target=server())
    assert modes(seen) == [("raw", "malformed"), ("raw", "answered")]
    assert seen.reply.trace.notes.count(OTHERWISE) == noted
    assert [note for note in seen.reply.trace.notes if "differently" in note] == [OTHERWISE] * noted


def test_a_conversation_without_calls_cannot_disagree():
    seen = play(ask(WEATHER), [*rendered("llamacpp"), said("llamacpp")], target=server())
    assert OTHERWISE not in seen.reply.trace.notes
