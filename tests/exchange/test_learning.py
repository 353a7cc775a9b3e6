"""A model that nobody knows: its format of calls is learned from the template that its server renders, and used."""

import json

import pytest
from invented_templates import invented_template
from scripted import JSON, WEATHER, Answer, ask, play, reply, stream

from promptools.dialects.own_dialects import DialectTable, read_own
from promptools.dialects.table import parse_table
from promptools.exchange import Route
from promptools.exchange.learning import (
    ANY_NAME_TTL,
    RETRY_SECONDS,
    FileRenderer,
    LearnedDialects,
    ServerRenderer,
    fingerprint,
    judge,
    known_format,
)
from promptools.exchange.runner import run
from promptools.exchange.state import knowing
from promptools.modes.jinja_template import jinja_renderer
from promptools.profiles import Config, Model, Provider, resolve
from promptools.profiles.server_detection import ProbeResponse
from promptools.wire.chat_template import BYTE_LETTERS

NO_CONFIG = Config()
FORM = "tags: an attribute"
CALL = '<grok:plan>\n<step tool="get_weather">\n<with key="city">Paris</with>\n</step>\n</grok:plan>'
SAID = f"Let me look.\n{CALL}"
LLAMACPP = {
    "/props": {"build_info": "b11549-abc", "default_generation_settings": {}},
    "/v1/models": {"data": [{"id": "m", "owned_by": "llamacpp"}]},
}
VLLM = {"/version": {"version": "0.32.0"}, "/v1/models": {"data": [{"id": "m", "owned_by": "vllm"}]}}
OLLAMA = {"/api/version": {"version": "0.32.15"}, "/v1/models": {"data": []}, "/api/show": {"capabilities": ["tools"]}}


def rendering(form=FORM, template=None):
    """What a server does that renders a template: its answer to the body of a request."""
    render = jinja_renderer(template or invented_template(form), special_tokens={"bos_token": ""})

    def text(body):
        messages = [with_objects(message) for message in body["messages"]]
        return render(messages, body.get("tools"), add_generation_prompt=body.get("add_generation_prompt", True))

    return text


def with_objects(message):
    """Servers give templates the arguments as objects."""
    calls = [
        {**call, "function": {**call["function"], "arguments": as_object(call["function"]["arguments"])}}
        for call in message.get("tool_calls", ())
    ]
    return {**message, "tool_calls": calls} if calls else message


def as_object(arguments):
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def llamacpp(form=FORM, **given):
    render = rendering(form, **given)
    return {**LLAMACPP, "/apply-template": lambda body: {"prompt": render(body)}}


def vllm():
    def tokens(body):
        strings = ["".join(BYTE_LETTERS[byte] for byte in letter.encode()) for letter in rendering()(body)]
        return {"tokens": [*range(len(strings))], "token_strs": strings, "max_model_len": 8192}

    return {**VLLM, "/tokenize": tokens}


def ollama():
    return {**OLLAMA, "/api/chat": lambda body: {"_debug_info": {"rendered_template": rendering()(body)}}}


SERVERS = {"llamacpp": llamacpp, "vllm": vllm, "ollama": ollama}


def routed(config=NO_CONFIG, provider=None, headers=(), **overrides):
    """Routes as a session makes them."""

    def route(model, named):
        def find(seen=None):
            base = None if provider else "http://server/v1"
            return resolve(model, base_url=base, provider=provider, config=config, overrides=overrides, seen=seen)

        target = find()
        return Route(target, None, headers, resolve=find if target.probe else None)

    return route


def send(looked, learned, *, streamed=False, said=SAID, at=100.0, body=None, **overrides):
    body = ask(WEATHER, stream=streamed, promptools={"trace": True}) if body is None else body
    answers = [stream(*said) if streamed else reply(said)]
    return play(body, answers, looked=looked, learned=learned, at=at, route=routed(**overrides))


def called(seen):
    return [(call.name, call.arguments) for call in seen.reply.calls]


class Kept(dict):
    def put(self, name, text):
        self[name] = text


KEPT = Kept()
"""For tests of what comes after learning: it takes a third of a second."""
PARIS = [("get_weather", {"city": "Paris"})]


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("name", ["llamacpp", "vllm"])
def test_a_call_in_an_unknown_format_is_read(name, streamed):
    looked, learned = SERVERS[name](), LearnedDialects()
    seen = send(looked, learned, streamed=streamed)
    (call,) = seen.reply.calls
    assert (call.name, call.arguments, seen.reply.content.strip()) == ("get_weather", {"city": "Paris"}, "Let me look.")
    trace = seen.reply.trace
    assert trace.seen.template_dialect == call.dialect
    assert trace.notes == (trace.seen.template_why,)
    assert 2 < len(seen.consulted) < 120
    again = send(looked, learned, streamed=streamed, at=101.0)
    assert called(again) == PARIS
    assert (again.consulted, again.reply.trace.notes) == ([], ())
    without = send(looked, None, streamed=streamed)
    assert (called(without), without.reply.content) == ([], SAID)


def test_in_ollamas_own_api():
    body = {"model": "m", "message": {"role": "assistant", "content": SAID}, "done": True, "done_reason": "stop"}
    seen = play(
        ask(WEATHER),
        [Answer(200, json.dumps(body).encode(), JSON)],
        looked=ollama(),
        learned=LearnedDialects(KEPT),
        route=routed(),
    )
    assert called(seen) == PARIS
    assert all(json.loads(request.body)["_debug_render_only"] for request in seen.consulted)


def test_in_raw_mode_it_is_what_the_prompt_expects():
    seen = play(ask(WEATHER, promptools={"mode": "raw"}), [rendered_prompt(), raw_answer(CALL)], **new_server())
    assert (called(seen), seen.bodies[0]["messages"]) == (PARIS, ask(WEATHER)["messages"])
    assert {"<grok:plan>", "</step>"} <= set(seen.bodies[1]["preserved_tokens"])


def test_a_required_call_is_begun_as_the_template_begins_it():
    examples = [rendered_prompt(name, arguments) for name, arguments in (("a", {}), ("b", {"q": "x"}))]
    begun = '<grok:plan>\n<step tool="'
    answers = [rendered_prompt(), *examples, raw_answer(CALL.removeprefix(begun))]
    seen = play(ask(WEATHER, tool_choice="required", promptools={"mode": "raw"}), answers, **new_server())
    assert called(seen) == PARIS
    assert seen.bodies[-1]["prompt"].endswith(f"<%%me%%>{begun}")


def new_server():
    return {"looked": llamacpp(), "learned": LearnedDialects(KEPT), "route": routed()}


def rendered_prompt(name="", arguments=None):
    """The server's answer to a conversation that it renders, with a call and its result if one is named."""
    body = ask(WEATHER)
    if name:
        call = {"id": "call00001", "type": "function", "function": {"name": name, "arguments": arguments}}
        body["messages"].append({"role": "assistant", "content": "", "tool_calls": [call]})
        body["messages"].append({"role": "tool", "content": "ok"})
    return Answer(200, json.dumps({"prompt": rendering()(body)}).encode())


def raw_answer(text):
    return Answer(200, json.dumps({"content": text, "stop": True, "stop_type": "eos"}).encode())


def test_its_markers_are_escaped_in_what_others_wrote():
    body = ask(WEATHER, promptools={"trace": True})
    body["messages"][0]["content"] = f"What does {CALL} mean?"
    seen = send(llamacpp(), LearnedDialects(KEPT), body=body)
    (sent,) = (message["content"] for message in seen.bodies[0]["messages"])
    assert "<grok:plan>" not in sent
    assert any(note.startswith("escaped: ") for note in seen.reply.trace.notes)


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        ({"learn": False}, {}),
        ({"accept": ["hermes"]}, {}),
        ({"template_dialect": "hermes"}, {}),
        ({"modes": ["prompt"]}, {}),
        ({}, {"promptools": {"mode": "prompt"}}),
        ({}, {"model": "qwen3-8b"}),
        ({}, {"tools": []}),
    ],
)
def test_nothing_is_learned_that_would_not_be_used(given, keys):
    body = {**ask(WEATHER), **keys}
    seen = send(llamacpp(), LearnedDialects(), body=body, said="Hi.", **given)
    assert (seen.consulted, seen.reply.content if seen.reply else "Hi.") == ([], "Hi.")


NO_ANSWER = {"/apply-template": None}
REFUSED = {"/apply-template": (400, b'{"error":{"message":"no"}}')}
NO_PROMPT = {"/apply-template": {"prompt": ""}}


@pytest.mark.parametrize("failing", [NO_ANSWER, REFUSED, NO_PROMPT])
def test_a_failure_is_a_note_and_tried_again_later(failing):
    learned = LearnedDialects()
    seen = send({**LLAMACPP, **failing}, learned, said="Hi.")
    assert (called(seen), seen.reply.content, len(seen.reply.trace.notes)) == ([], "Hi.", 1)
    assert "nothing was learned" in seen.reply.trace.notes[0]
    assert send(llamacpp(), learned, at=101.0).consulted == []
    assert called(send(llamacpp(), learned, at=101.0 + RETRY_SECONDS)) == PARIS


def test_a_template_without_calls_is_not_studied_twice():
    plain = "{% for message in messages %}<%% {{ message.role }} %%>{{ message.content }}{% endfor %}"
    learned = LearnedDialects()
    first = send(llamacpp(template=plain), learned, said="Hi.")
    assert "nothing was learned" in first.reply.trace.notes[0]
    later = send(llamacpp(template=plain), learned, said="Hi.", at=101.0 + ANY_NAME_TTL)
    assert len(later.consulted) == 2, "the fingerprint"


def test_llamacpp_is_asked_again_which_template_it_has():
    learned = LearnedDialects()
    assert called(send(llamacpp(), learned)) == PARIS
    later = send(llamacpp("key_value"), learned, at=101.0 + ANY_NAME_TTL)
    assert called(later) == [], "it has another model by now"
    assert len(later.consulted) > 2
    back = send(llamacpp(), learned, at=102.0 + 2 * ANY_NAME_TTL)
    assert (called(back), len(back.consulted)) == (PARIS, 2)


def test_one_exchange_learns_and_the_others_go_on():
    learned, render = LearnedDialects(KEPT), llamacpp()["/apply-template"]
    inner = []

    def meanwhile(body):
        if not inner:
            inner.append(None)
            inner.append(send(llamacpp(), learned))
        return render(body)

    assert called(send({**LLAMACPP, "/apply-template": meanwhile}, learned)) == PARIS
    assert (called(inner[1]), inner[1].consulted) == ([], [])


def test_what_is_kept_is_not_learned_again():
    kept = Kept()
    first = send(llamacpp(), LearnedDialects(kept))
    (name,) = kept
    assert name == first.reply.trace.seen.template_dialect
    again = send(llamacpp(), LearnedDialects(kept))
    assert (called(again), len(again.consulted)) == (PARIS, 2)
    kept[name] = "kind = 7"
    mended = send(llamacpp(), LearnedDialects(kept))
    assert (called(mended), len(mended.consulted)) == (PARIS, len(first.consulted)), "a damaged table is learned again"


def test_it_is_asked_where_the_request_goes_with_its_keys():
    headers = (("authorization", "Bearer mine"), ("x-api-key", "other"))
    route = routed(headers=(("authorization", "Bearer theirs"), ("x-api-key", "")))
    seen = play(
        ask(WEATHER), [reply(SAID)], headers=headers, looked=llamacpp(), learned=LearnedDialects(KEPT), route=route
    )
    assert {request.url for request in seen.consulted} == {"http://server/apply-template"}
    assert {dict(request.headers).get("authorization") for request in seen.consulted} == {"Bearer theirs"}
    assert all("x-api-key" not in dict(request.headers) for request in seen.consulted)


def test_a_template_of_the_config_is_learned_without_asking_anyone(tmp_path):
    (tmp_path / "chat_template.jinja").write_text(invented_template(FORM))
    facts = {"chat_template": "chat_template.jinja", "raw": "completions"}
    provider = Provider("box", kind="lmstudio", base_url="http://server/v1", facts=facts)
    config = Config(providers={"box": provider}, file=str(tmp_path / "promptools.toml"))
    looked = {"/api/v0/models": {"data": [{"id": "m", "compatibility_type": "gguf", "state": "loaded"}]}}
    seen = send(looked, LearnedDialects(KEPT), config=config, provider="box")
    assert (called(seen), seen.consulted) == (PARIS, [])


def test_what_the_template_always_gets_is_what_it_is_learned_with():
    model = Model("m", defaults={"chat_template_kwargs": {"style": "long"}})
    provider = Provider("box", kind="llamacpp", base_url="http://server/v1", models={"m": model})
    config = Config(providers={"box": provider})
    seen = send(llamacpp(), LearnedDialects(KEPT), config=config, provider="box")
    assert all(json.loads(request.body)["chat_template_kwargs"] == {"style": "long"} for request in seen.consulted)


MINE = """
kind = "tags"
name = "mine"
wrapper = "<grok:plan>{calls}</grok:plan>"
call = '<step tool="{name}">{parameters}</step>'
parameter = '<with key="{key}">{value}</with>'
"""


def test_an_own_dialect_comes_before_the_learned_one():
    own = read_own((DialectTable("mine.toml", MINE),))
    seen = play(
        ask(WEATHER),
        [reply(SAID)],
        looked=llamacpp(),
        learned=LearnedDialects(KEPT),
        route=routed(),
        begin=lambda request, context: knowing(own, run(request, context)),
    )
    assert [call.dialect for call in seen.reply.calls] == ["mine"]


HERMES = invented_template("json: an object").replace("zork", "tool_call")


def test_a_format_that_is_known_is_left_to_its_dialect():
    learned = LearnedDialects()
    text = '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>'
    seen = send(llamacpp(template=HERMES), learned, said=text)
    assert (called(seen), seen.reply.trace.seen.template_dialect) == (PARIS, "hermes")
    assert not learned.dialects().given


def test_markers_that_prose_may_hold_are_not_used_unasked():
    table = DialectTable("x.toml", 'kind = "json"\nname = "x"\ntier = "B"\n[openers]\n"Call it:" = "Done."\n')
    own = read_own((table,))
    finding = judge(own.by_name["x"], own)
    assert (finding.dialect, finding.own) == (None, None)
    assert known_format(replace_marker("<|odd|>")) is None, "that its JSON is found is no evidence"


def replace_marker(opener):
    return parse_table(DialectTable("x.toml", f'kind = "json"\nname = "x"\n[openers]\n"{opener}" = ""\n'))


def test_a_fingerprint_is_of_the_template_alone():
    def prints(template, **tokens):
        render = jinja_renderer(template, special_tokens={"bos_token": "", **tokens})
        return fingerprint(lambda messages, tools, **options: render([with_objects(m) for m in messages], tools))

    one = prints(invented_template(FORM))
    assert one == prints(invented_template(FORM))
    assert one != prints(invented_template("key_value"))
    assert one.isidentifier()


def test_a_file_has_what_its_config_says_of_parsing(tmp_path):
    declared = {"response_template": {"version": 1, "fields": {"tool_calls": {"open": "<zork>"}}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", **declared}))
    (tmp_path / "chat.jinja").write_text(invented_template(FORM))
    render = FileRenderer(str(tmp_path / "chat.jinja"), {})
    assert render.declared == declared
    assert fingerprint(render, declared) != fingerprint(render)


def test_options_of_a_template_are_its_variables():
    sent = []
    given = {"model": "m", "chat_template_kwargs": {"style": "long"}}
    answer = ProbeResponse(200, b'{"prompt": "x"}')
    render = ServerRenderer(given, "llamacpp", lambda body, path: sent.append(json.loads(body)), lambda request: answer)
    assert render([{"role": "user", "content": "?"}], None, enable_thinking=False, add_generation_prompt=False) == "x"
    assert sent[0]["chat_template_kwargs"] == {"style": "long", "enable_thinking": False}
    assert sent[0]["add_generation_prompt"] is False
