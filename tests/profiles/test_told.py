"""What a server says of its models, and the family that is taken from it: before the name in the request."""

import json
from pathlib import Path

import pytest

from promptools.profiles import Config, Model, Provider, families, kinds, load_builtin, resolve
from promptools.profiles.facts import families_of_template, families_without, family_known_as, template_allows
from promptools.profiles.server_detection import (
    ProbeResponse,
    kind_requests,
    model_requests,
    read_kind,
    read_model,
    read_models,
    read_server,
    server_requests,
    version_requests,
    with_model,
)
from promptools.types import ServerInfo

BASE = "http://host:8000/v1"
TEMPLATES = Path(__file__).parents[2] / "promptools/lab/templates"
HARMONY, HERMES, PLAIN = ((TEMPLATES / f"{name}.jinja").read_text() for name in ("harmony", "hermes", "plain"))
# the template of Qwen2.5 and Qwen2.5-Coder has these fragments, that of Qwen3 takes thoughts out of the history too
QWEN = HERMES + "{#- You may call one or more functions to assist with the user query. -#}"
QWEN3_TEMPLATE = QWEN + "{%- set content = content.split('</think>')[-1] %}"


def seen(told, model, kind=None):
    """What a look concludes of a model, from the answers by path."""
    questions = kind_requests(BASE, kind) if kind else server_requests(BASE)
    said = answers(questions, told)
    found = read_kind(kind, questions, said) if kind else read_server(questions, said)
    return with_model(found, read_models(questions, said), model)


def answers(questions, told):
    return [
        ProbeResponse(200, json.dumps(told[path]).encode())
        if (path := each.url.removeprefix("http://host:8000")) in told
        else None
        for each in questions
    ]


def props(template="", path="model.gguf", **more):
    settings = {"n_ctx": 8192, "params": {}}
    props = {"build_info": "b10488-x", "default_generation_settings": settings, "model_path": path, **more}
    return {"/props": {**props, "chat_template": template}}


LLAMACPP = [
    # the template says what no name says, and goes before a name that contradicts it
    (props(HARMONY), "tiny", "gpt-oss"),
    (props(HARMONY), "gpt-4o", "gpt-oss"),
    (props(HARMONY), "llama-3.1-8b", "gpt-oss"),
    (props(HARMONY, "/models/llama-3.1-8b.gguf"), "tiny", "gpt-oss"),
    (props(HERMES), "gpt-oss-20b", "hermes"),
    (props(HERMES), "tiny", "hermes"),
    (props(QWEN), "tiny", "qwen"),
    # names choose among the families that share a template
    (props(QWEN), "qwen2.5-coder:7b", "qwen2.5-coder"),
    (props(QWEN, "/models/Qwen2.5-Coder-7B-Instruct-Q4_K_M.gguf"), "gpt-oss-20b", "qwen2.5-coder"),
    (props(QWEN, "/models/Hermes-4-14B.Q8_0.gguf"), "tiny", "hermes"),
    (props("", "", chat_template_tool_use=HERMES, model_path="m.gguf"), "tiny", "hermes"),
    # a family that declares no template is not contradicted by one
    (props(QWEN, "/models/Cogito-v1-8B.gguf"), "tiny", "cogito"),
    # files, folders and the cache of the hub
    (props(PLAIN, "/models/gpt-oss-20b-mxfp4.gguf"), "tiny", "gpt-oss"),
    (props("", "C:\\models\\gpt-oss-120b\\model-00001-of-00003.gguf"), "qwen3", "gpt-oss"),
    (props("", "/hub/models--unsloth--gpt-oss-20b-GGUF/snapshots/0123abcd/q4.gguf"), "tiny", "gpt-oss"),
    (props("", "m.gguf", model_alias="gpt-oss-20b"), "tiny", "gpt-oss"),
    # names that people give: of families that share the template, or lost
    (props(QWEN, model_alias="qwen2.5-coder"), "gpt-4", "qwen2.5-coder"),
    (props(QWEN, model_alias="gpt-oss-20b"), "llama3", "qwen"),
    (props(QWEN, model_alias="llama3"), "gpt-4", "qwen"),
    (props(QWEN, "/models/Qwen2.5-Coder-0.5B-Instruct-GGUF/q05.gguf", model_alias="llama3"), "x", "qwen2.5-coder"),
    # Qwen3's template is not Qwen2.5-Coder's, whatever somebody calls it
    (props(QWEN3_TEMPLATE), "qwen2.5-coder:7b", "qwen"),
    (props(QWEN3_TEMPLATE, "/models/qwen2.5-coder.gguf"), "local-model", "qwen"),
    # what says nothing leaves it to the name
    (props(PLAIN), "tiny", None),
    (props("{{ messages }}"), "gpt-oss-20b", "gpt-oss"),
]


@pytest.mark.parametrize(("told", "model", "family"), LLAMACPP)
@pytest.mark.parametrize("kind", [None, "llamacpp"])
def test_what_llamacpp_says_of_its_model(told, model, family, kind):
    found = seen(told, model, kind)
    assert (found.kind, found.family, found.context) == ("llamacpp", family, 8192)
    assert bool(found.family_why) == bool(family)


def listed(*models):
    return {
        "/version": {"version": "0.32.0"},
        "/v1/models": {"data": [{"owned_by": "vllm", **each} for each in models]},
    }


OSS = {"id": "fast", "root": "openai/gpt-oss-20b", "max_model_len": 8192}
LORA = {"id": "sql", "root": "/adapters/sql", "parent": "fast"}
QWEN3 = {"id": "qwen", "root": "/models/Qwen3-8B", "max_model_len": 4096}


@pytest.mark.parametrize(
    ("told", "model", "family", "context"),
    [
        (listed(OSS, LORA, QWEN3), "fast", "gpt-oss", 8192),
        (listed(OSS, LORA, QWEN3), "sql", "gpt-oss", 4096),
        (listed(OSS, LORA, QWEN3), "qwen", "qwen", 4096),
        (listed(OSS, LORA, QWEN3), "nowhere", None, 4096),
        (listed(OSS), "tiny", "gpt-oss", 8192),
        (listed(OSS), "llama-3.1-8b", "llama", 8192),
        (listed({"id": "fast", "root": None, "max_model_len": True, "aliases": 7}), "fast", None, None),
        (listed({"id": "x", "root": "/models/gpt-oss-20b/", "aliases": ["fast", 7]}, QWEN3), "fast", "gpt-oss", 4096),
    ],
)
@pytest.mark.parametrize("kind", [None, "vllm"])
def test_what_vllm_says_of_its_models(told, model, family, context, kind):
    found = seen(told, model, kind)
    assert (found.version, found.family, found.context) == ("0.32.0", family, context)


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
@pytest.mark.parametrize(
    ("model_path", "served", "model", "family", "by"),
    [
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "local-model", "local-model", "qwen2.5-coder", "model_path"),
        ("/models/Qwen2.5-Coder-7B-Instruct/", "llama3", "llama3", "qwen2.5-coder", "model_path"),
        ("/models/q05", "local-model", "qwen2.5-coder", "qwen2.5-coder", "name"),
        ("Qwen/Qwen2.5-Coder-7B-Instruct", "base", "adapter", None, ""),
        (None, "local-model", "local-model", None, ""),
    ],
)
def test_sglang_tells_the_path_with_its_version(path, model_path, served, model, family, by):
    """Its list of models has the served name as the root."""
    names = [served] if served != "base" else ["base", "adapter"]
    listed = {"/v1/models": {"data": [{"id": each, "root": each, "owned_by": "sglang"} for each in names]}}
    told = {**listed, path: {"version": "0.5.10", "model_path": model_path, "served_model_name": served}}
    questions = server_requests(BASE)
    found = read_server(questions, answers(questions, told))
    more = version_requests(BASE, found)
    every, said = (*questions, *more), (*answers(questions, told), *answers(more, told))
    found = with_model(found, read_models(every, said), model)
    assert (found.kind, found.family, found.family_by) == ("sglang", family, by)


def studio(*models):
    made = [{"type": "llm", "compatibility_type": "gguf", "state": "not-loaded", **each} for each in models]
    return {"/api/v0/models": {"data": made}}


LOADED = {"id": "openai/gpt-oss-20b", "arch": "gpt-oss", "state": "loaded", "loaded_context_length": 8192}
ARCH = {"id": "mine", "arch": "gpt-oss", "state": "loaded"}
IDLE = {"id": "qwen3-8b", "arch": "qwen3"}


@pytest.mark.parametrize(
    ("told", "model", "family", "context"),
    [
        (studio(LOADED, IDLE), "tiny", "gpt-oss", 8192),
        (studio(LOADED, IDLE), "qwen3-8b", "qwen", None),
        (studio(ARCH), "mine", "gpt-oss", None),
        (studio(LOADED, ARCH), "tiny", None, None),
        (studio(IDLE, IDLE), "tiny", None, None),
        (studio({**LOADED, "id": None}), "tiny", "gpt-oss", 8192),
    ],
)
@pytest.mark.parametrize("kind", [None, "lmstudio"])
def test_what_lm_studio_says_of_its_models(told, model, family, context, kind):
    found = seen(told, model, kind)
    assert (found.kind, found.family, found.context) == ("lmstudio", family, context)


def shown(model="tiny", /, **said):
    (question,) = model_requests(BASE, model)
    return read_model(ServerInfo("ollama"), [question], [ProbeResponse(200, json.dumps(said).encode())], model)


@pytest.mark.parametrize(
    ("said", "family"),
    [
        ({"template": HARMONY}, "gpt-oss"),
        ({"modelfile": "FROM x\nPARSER harmony\n", "template": "{{ .Prompt }}"}, "gpt-oss"),
        ({"details": {"family": "gptoss"}}, "gpt-oss"),
        ({"details": {"family": "llama"}, "model_info": {"general.architecture": "llama"}}, None),
        ({"details": {"parent_model": "gpt-oss:20b"}}, "gpt-oss"),
        ({"model_info": {"general.basename": "Qwen2.5-Coder"}, "template": QWEN}, "qwen2.5-coder"),
        ({"model_info": {"general.architecture": "gptoss"}, "template": HERMES}, "hermes"),
        ({"details": [], "model_info": 7, "template": None, "modelfile": []}, None),
    ],
)
def test_what_ollama_says_of_a_model(said, family):
    assert shown(**said).family == family


CODER = {"general.architecture": "qwen2", "general.basename": "Qwen2.5-Coder", "general.finetune": "Instruct"}
QWEN2, QWEN3_WEIGHTS, LLAMA = ({"general.architecture": name} for name in ("qwen2", "qwen3", "llama"))
BASENAME = "general.basename, general.finetune"
TUNED = {**CODER, "general.basename": "Qwen2.5", "general.finetune": "Coder-Instruct"}
TITLED = {**QWEN2, "general.name": "Qwen2.5 Coder 0.5B Instruct AWQ"}
BUILT_ON = {**QWEN2, "general.basename": "House", "general.base_model.0.name": "Qwen2.5 Coder 7B Instruct"}


@pytest.mark.parametrize(
    ("said", "model", "family", "by"),
    [
        # what the file says of itself, under any name that it is served by, and without a template
        ({"model_info": CODER, "template": QWEN}, "llama3", "qwen2.5-coder", BASENAME),
        ({"model_info": CODER, "template": "{{ .Prompt }}"}, "gpt-4", "qwen2.5-coder", BASENAME),
        ({"model_info": TUNED}, "q05", "qwen2.5-coder", BASENAME),
        ({"model_info": TITLED}, "q05", "qwen2.5-coder", "general.name"),
        ({"model_info": BUILT_ON, "template": QWEN}, "q05", "qwen2.5-coder", "general.base_model.0.name"),
        ({"model_info": BUILT_ON, "template": HERMES}, "q05", "hermes", "chat template"),
        ({"model_info": BUILT_ON}, "q05", None, ""),
        ({"template": HERMES}, "hermes-3-llama-3.1-8b", "hermes", "chat template"),
        # the architecture excludes families, of the template and of names
        ({"model_info": LLAMA, "template": QWEN}, "tiny", "hermes", "architecture"),
        ({"model_info": QWEN3_WEIGHTS, "template": QWEN}, "qwen2.5-coder:7b", "qwen", "architecture"),
        ({"model_info": QWEN2, "template": QWEN}, "qwen2.5-coder:7b", "qwen2.5-coder", "name"),
        ({"model_info": QWEN2, "template": QWEN}, "q05", "qwen", "chat template"),
        ({"model_info": QWEN2}, "llama3", None, ""),
        ({"model_info": QWEN2}, "qwen2.5-coder:7b", "qwen2.5-coder", "name"),
        ({"model_info": {"general.architecture": "gpt_oss"}}, "llama3", None, ""),
        # one that nobody has declared says nothing, and a parser of Ollama's is for a format
        ({"model_info": {"general.architecture": "qwen9"}}, "llama3", "llama", "name"),
        ({"model_info": LLAMA, "modelfile": "PARSER harmony"}, "tiny", "gpt-oss", "PARSER"),
        ({"model_info": LLAMA, "template": HARMONY}, "tiny", "gpt-oss", "chat template"),
        ({}, "llama3", "llama", "name"),
        ({}, "tiny", None, ""),
    ],
)
def test_which_evidence_decides_on_ollama(said, model, family, by):
    found = shown(model, **said)
    assert (found.family, found.family_by) == (family, by), found.family_evidence
    assert bool(found.family_why) == bool(family)
    assert ServerInfo.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_a_name_that_the_evidence_contradicts_is_not_a_family_for_the_profile_either():
    contradicted = shown("llama3", model_info=QWEN2)
    target = resolve("llama3", provider="ollama", seen=contradicted)
    assert target.profile.family is None
    assert "family: none that all the server's evidence allows" in target.reasons
    house = Provider("p", base_url=BASE, kind="ollama", models={"llama3": Model("llama3", family="qwen2.5-coder")})
    mine = resolve("llama3", config=Config(providers={"p": house}), seen=contradicted)
    assert (mine.profile.family, mine.profile.modes[0]) == ("qwen2.5-coder", "prompt")
    assert resolve("llama3", provider="ollama", seen=ServerInfo("ollama")).profile.family == "llama"


def listing(vocabulary, **meta):
    meta = {"n_vocab": vocabulary, **meta}
    return {"/v1/models": {"data": [{"id": "local-model", "owned_by": "llamacpp", "meta": meta}]}}


@pytest.mark.parametrize(
    ("template", "vocabulary", "model", "family", "by"),
    [
        (QWEN, 151_936, "local-model", "qwen", "chat template"),
        (QWEN, 128_256, "local-model", "hermes", "n_vocab"),
        (QWEN, 128_256, "qwen2.5-coder", "hermes", "n_vocab"),
        (QWEN, 151_665, "qwen2.5-coder", "qwen2.5-coder", "name"),
        (PLAIN, 151_936, "llama3", None, ""),
        (PLAIN, 128_256, "llama3", "llama", "name"),
        (PLAIN, None, "llama3", "llama", "name"),
    ],
)
def test_the_size_of_the_vocabulary_excludes_families(template, vocabulary, model, family, by):
    found = seen(props(template) | listing(vocabulary), model, "llamacpp")
    assert (found.family, found.family_by) == (family, by), found.family_evidence


@pytest.mark.parametrize(
    ("found", "parameters"),
    [
        (seen(props(QWEN) | listing(151_936, n_params=494_032_768), "m", "llamacpp"), 494_032_768),
        (seen(props(QWEN) | listing(151_936, n_params=0), "m-7b", "llamacpp"), 7e9),
        (seen(props(QWEN) | listing(151_936, n_params="494032768"), "m-7b", "llamacpp"), 7e9),
        (seen(props(QWEN, "/models/qwen2.5-coder-0.5b.gguf"), "m-7b", "llamacpp"), 0.5e9),
        (seen(props(QWEN, model_alias="coder-3b"), "m-7b", "llamacpp"), 3e9),
        (seen(props(QWEN), "m-7b", "llamacpp"), 7e9),
        (seen(props(QWEN), "m", "llamacpp"), None),
        (shown("m", model_info={"general.parameter_count": 494_032_768}), 494_032_768),
        (shown("m", details={"parameter_size": "494.03M"}), 494.03e6),
        (shown("coder:0.5b", details={"parameter_size": 5}), 0.5e9),
    ],
)
def test_the_size_of_a_model_by_its_server_or_its_names(found, parameters):
    assert found.parameters == pytest.approx(parameters)


@pytest.mark.parametrize(
    ("model", "told", "on_repeat"),
    [
        ("qwen2.5-coder-0.5b", None, "answer"),
        ("qwen2.5-coder-1.5b", None, None),
        ("qwen2.5-coder", None, None),
        ("qwen2.5-coder", listing(151_936, n_params=494_032_768), "answer"),
        ("qwen2.5-coder-0.5b", listing(151_936, n_params=1_543_714_304), None),
        ("qwen2.5-0.5b", None, None),
    ],
)
def test_the_smallest_model_of_a_family_may_need_another_setting(model, told, on_repeat):
    """The 0.5B was measured; the others were not, or do not need it. The server's count goes before a name."""
    found = None if told is None else seen(props(QWEN) | told, model, "llamacpp")
    target = resolve(model, base_url=BASE, seen=found)
    assert target.profile.on_repeat == on_repeat
    own = resolve(model, base_url=BASE, seen=found, overrides={"on_repeat": "hint"})
    assert own.profile.on_repeat == "hint"


def test_all_that_was_considered_is_told_in_order():
    found = seen(props(QWEN, "/models/q05.gguf", model_alias="llama3") | listing(151_936), "gpt-4-mistral", "llamacpp")
    assert found.family_evidence == (
        ("chat template", "qwen, qwen-thinking, qwen2.5-coder, hermes"),
        ("n_vocab 151936", ""),
        ("model_path 'q05.gguf'", ""),
        ("model_alias 'llama3'", "llama, contradicted"),
        ("id 'local-model'", ""),
        ("name 'gpt-4-mistral'", "mistral, contradicted"),
    )
    assert found.family_why == (
        "the chat template that the server tells; no name says that it is qwen-thinking, qwen2.5-coder, hermes,"
        " which would fit too"
    )


def test_a_long_name_is_told_in_part():
    found = seen(props(QWEN, model_alias="y" * 100_000), "x" * 100_000, "llamacpp")
    assert max(len(label) for label, _ in found.family_evidence) < 1000


@pytest.mark.parametrize(
    ("modelfile", "parser", "dialect"),
    [
        ("FROM x\nRENDERER qwen3-coder\nPARSER qwen3-coder\n", "qwen3-coder", "json"),
        ("FROM x\nPARSER passthrough\n", None, "qwen3_coder"),
        ("FROM x\nSYSTEM the PARSER reads\n", None, "qwen3_coder"),
    ],
)
def test_prompt_mode_does_not_ask_for_what_a_parser_of_ollamas_reads(modelfile, parser, dialect):
    """It runs over replies to requests without tools too."""
    found = shown(modelfile=modelfile, details={"parent_model": "qwen3-coder:30b"})
    assert (found.family, found.parser) == ("qwen3-coder", parser)
    assert resolve("m", provider="ollama", seen=found).profile.dialect == dialect
    own = {"dialect": "hermes"}
    assert resolve("m", provider="ollama", seen=found, overrides=own).profile.dialect == "hermes"


def test_the_context_that_a_modelfile_sets():
    found = shown(parameters='num_ctx                        16384\nstop                           "<|im_end|>"')
    assert found.num_ctx == 16384
    assert shown(parameters="num_ctx 0").num_ctx is None
    assert shown(parameters=["num_ctx 1"]).num_ctx is None


@pytest.mark.parametrize("name", families())
def test_a_template_is_declared_in_fragments_that_markup_alone_has(name):
    shipped = load_builtin(name)
    for each in shipped.templates:
        assert each.holds
        assert each.source
        assert name in families_of_template(" ".join(each.holds))
        assert template_allows(name, families_of_template(" ".join(each.holds)))
    for word in shipped.known_as:
        assert family_known_as(word) == name
        assert name not in families_without("architectures", word), "a family has the architecture that it is known by"


def test_servers_have_no_templates():
    assert not any(load_builtin(kind).templates or load_builtin(kind).known_as for kind in kinds())


def test_no_word_means_two_families():
    words = [word for name in families() for word in load_builtin(name).known_as]
    assert len(words) == len(set(words))


def test_a_template_that_is_plain_text_is_no_familys():
    assert families_of_template("{{ messages }} <tool_call> about <|im_start|>") == ()


def test_a_family_of_the_config_goes_over_the_one_that_was_seen():
    found = seen(props(HARMONY), "tiny")
    target = resolve("tiny", base_url=BASE, config=Config(), seen=found)
    assert (target.profile.family, target.profile.context) == ("gpt-oss", 8192)
    assert target.profile.modes == ("native", "harmony", "prompt")
    assert "family 'gpt-oss': by the chat template that the server tells" in target.reasons
    for family, expected in (("qwen", "qwen"), ("none", None)):
        house = Provider("p", base_url=BASE, kind="llamacpp", models={"tiny": Model("tiny", family=family)})
        assert resolve("tiny", config=Config(providers={"p": house}), seen=found).profile.family == expected


def test_a_long_list_of_adapters_is_read_in_one_go():
    told = listed(*({"id": f"a{at}", "root": "/a", "parent": "a0"} for at in range(20_000)))
    assert (seen(told, "a19999").family, seen(told, "nowhere").family) == (None, None)


@pytest.mark.parametrize(
    ("more", "modes"),
    [
        ({"chat_template_caps": {"supports_tools": False}}, ("prompt",)),
        ({"chat_template_caps": {"supports_tools": True}}, ("native", "raw", "prompt")),
        ({"chat_template_caps": {}}, ("native", "raw", "prompt")),
        ({}, ("native", "raw", "prompt")),
        (
            {"chat_template_caps": {"supports_tools": False}, "chat_template_tool_use": HERMES},
            ("native", "raw", "prompt"),
        ),
    ],
)
def test_a_template_without_a_place_for_tools_leaves_prompt_mode(more, modes):
    # llama.cpp drops the tools of a request there and says nothing: the model never sees them
    found = seen(props(PLAIN, **more), "tiny")
    target = resolve("tiny", base_url=BASE, seen=found)
    assert target.profile.modes == modes
    assert (modes == ("prompt",)) == any("shows it no tools" in why for why in target.reasons)
    assert ServerInfo.from_dict(found.to_dict()) == found
