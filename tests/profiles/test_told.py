"""What a server says of its models, and the family that is taken from it: before the name in the request."""

import json
from pathlib import Path

import pytest

from promptools.profiles import Config, Model, Provider, families, kinds, load_builtin, resolve
from promptools.profiles.facts import families_of_template, family_known_as, template_allows
from promptools.profiles.server_detection import (
    ProbeResponse,
    kind_requests,
    model_requests,
    read_kind,
    read_model,
    read_models,
    read_server,
    server_requests,
    with_model,
)
from promptools.types import ServerInfo

BASE = "http://host:8000/v1"
TEMPLATES = Path(__file__).parents[2] / "promptools/lab/templates"
HARMONY, HERMES, PLAIN = ((TEMPLATES / f"{name}.jinja").read_text() for name in ("harmony", "hermes", "plain"))
QWEN = HERMES + "{#- You may call one or more functions to assist with the user query. -#}"


def seen(told, model, kind=None):
    """What a look concludes of a model, from the answers by path."""
    questions = kind_requests(BASE, kind) if kind else server_requests(BASE)
    answers = [
        ProbeResponse(200, json.dumps(told[path]).encode())
        if (path := each.url.removeprefix("http://host:8000")) in told
        else None
        for each in questions
    ]
    found = read_kind(kind, questions, answers) if kind else read_server(questions, answers)
    return with_model(found, read_models(questions, answers), model)


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
    # what says nothing leaves it to the name
    (props(PLAIN), "tiny", None),
    (props("{{ messages }}"), "gpt-oss-20b", None),
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
        (listed(OSS), "llama-3.1-8b", None, 8192),
        (listed({"id": "fast", "root": None, "max_model_len": True, "aliases": 7}), "fast", None, None),
        (listed({"id": "x", "root": "/models/gpt-oss-20b/", "aliases": ["fast", 7]}, QWEN3), "fast", "gpt-oss", 4096),
    ],
)
@pytest.mark.parametrize("kind", [None, "vllm"])
def test_what_vllm_says_of_its_models(told, model, family, context, kind):
    found = seen(told, model, kind)
    assert (found.version, found.family, found.context) == ("0.32.0", family, context)


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


def shown(**said):
    (question,) = model_requests(BASE, "tiny")
    return read_model(ServerInfo("ollama"), [question], [ProbeResponse(200, json.dumps(said).encode())], "tiny")


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
