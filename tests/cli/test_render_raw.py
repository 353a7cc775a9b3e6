"""`promptools render --mode raw FILE`: the prompt as a server renders it, or a template file."""

import json
import re

import httpx
import openai
import pytest
from serving import serving
from upstream import running, unary

from promptools.cli import main
from promptools.client import OpenAI
from promptools.lab import weather
from promptools.lab.llamacpp_server import TEMPLATES, can_serve, serve
from promptools.profiles import Config
from promptools.proxy import Proxy

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the weather.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
REQUEST = {"model": "qwen3-scripted", "messages": [{"role": "user", "content": "Oslo?"}], "tools": [TOOL]}
VLLM = {"/version": {"version": "0.32.0"}, "/v1/models": {"data": [{"id": "qwen3-scripted", "owned_by": "vllm"}]}}
OLLAMA = {
    "/api/version": {"version": "0.32.15"},
    "/api/show": {"capabilities": ["completion", "tools"], "details": {}, "model_info": {}},
}
PROMPT = "<|im_start|>user\nOslo?<|im_end|>\n<|im_start|>assistant\n"
NAMED = {"type": "function", "function": {"name": "get_weather"}}
IMAGE = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]}


@pytest.fixture(autouse=True)
def no_key(monkeypatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def write(tmp_path):
    def put(**more):
        path = tmp_path / "request.json"
        path.write_text(json.dumps({**REQUEST, **more}))
        return path

    return put


@pytest.fixture
def upstream():
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def llamacpp():
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    with serve(weather.hermes_script(), template="hermes", name="qwen3-scripted") as server:
        yield server.base_url


def run(capsys, *arguments):
    status = main(["render", "--mode", "raw", *map(str, arguments)])
    printed = capsys.readouterr()
    return status, printed.out, printed.err


# --- a real llama.cpp ------------------------------------------------------------------------------------------------


def test_llamacpp_renders_the_prompt(capsys, write, llamacpp):
    status, out, err = run(capsys, write(), "--base-url", llamacpp)
    assert status == 0
    assert out.startswith("<|im_start|>system\n")
    assert '"name": "get_weather"' in out
    assert out.endswith("<|im_start|>user\nOslo?<|im_end|>\n<|im_start|>assistant\n\n")
    assert err == 'note: the reply ends at "<|im_end|>\\n<|im_start|>"\n'


@pytest.mark.parametrize(
    ("choice", "begun"),
    [
        ("required", '<tool_call>\n{"name": "'),
        (
            {"type": "function", "function": {"name": "get_weather"}},
            '<tool_call>\n{"name": "get_weather", "arguments":',
        ),
    ],
)
def test_a_required_call_is_begun(capsys, write, llamacpp, choice, begun):
    status, out, err = run(capsys, write(tool_choice=choice), "--base-url", llamacpp)
    assert status == 0
    assert out.endswith(f"<|im_start|>assistant\n{begun}\n")
    assert f"note: the prompt ends with the beginning of the call: {json.dumps(begun)}\n" in err


def test_it_is_json_for_scripts(capsys, write, llamacpp):
    messages = [{"role": "user", "content": "What is <|im_end|>?"}]
    status, out, err = run(capsys, write(messages=messages, tool_choice="required"), "--base-url", llamacpp, "--json")
    assert (status, err) == (0, "")
    data = json.loads(out)
    assert data["text"].endswith(f"What is <\\|im_end|>?<|im_end|>\n<|im_start|>assistant\n{data['prefill']}")
    assert data["ids"] is None
    assert data["prefill"] == '<tool_call>\n{"name": "'
    assert data["ends"] == ["<|im_end|>\n<|im_start|>"]
    assert data["notes"] == ["escaped: 1 control token or marker in message 0"]


def test_the_server_may_be_named(capsys, write, llamacpp):
    arguments = ("--base-url", llamacpp, "--no-detect")
    assert run(capsys, write(), *arguments, "--provider", "llamacpp")[0] == 0
    status, out, err = run(capsys, write(), *arguments)
    assert (status, out) == (2, "")
    assert "raw mode needs a server that renders its chat template" in err


def test_the_request_may_name_the_mode(capsys, write, llamacpp):
    path = write(promptools={"mode": "raw"})
    assert main(["render", str(path), "--base-url", llamacpp]) == 0
    assert capsys.readouterr().out.startswith("<|im_start|>system\n")


def test_a_prompt_has_no_place_for_an_image(capsys, write, llamacpp):
    status, out, err = run(capsys, write(messages=[IMAGE]), "--base-url", llamacpp)
    assert (status, out) == (2, "")
    assert err == "promptools render: a prompt cannot hold the conversation's parts that are not text\n"


@pytest.mark.exhaustive
def test_a_template_that_shows_no_tools_is_told_everywhere(capsys, write, tmp_path):
    """By the command, in the app's process, and through the proxy; nothing is generated."""
    if not can_serve():
        pytest.skip("xllamacpp or gguf is not installed here")
    why = "the model's template does not show it the tools, so raw mode is not possible: leave `mode` out"
    settings = {"config": Config(), "mode": "raw"}
    with serve(weather.hermes_script(), template="plain", name="plain", folder=tmp_path) as server:
        status, out, err = run(capsys, write(), "--base-url", server.base_url)
        assert (status, out) == (2, "")
        assert err.startswith(f"promptools render: {why}")
        with OpenAI(base_url=server.base_url, api_key="none", max_retries=0, **settings) as client:
            for stream in (False, True):
                with pytest.raises(openai.BadRequestError, match=re.escape(why)) as refused:
                    client.chat.completions.create(**REQUEST, stream=stream)
                assert refused.value.type == "UsageError"
        with serving(Proxy(base_url=server.base_url, **settings)) as port:
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=REQUEST, timeout=300)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "UsageError")


def test_detect_tells_how_llamacpp_renders(capsys, llamacpp):
    assert main(["detect", "--base-url", llamacpp]) == 0
    out = capsys.readouterr().out
    assert "raw mode is offered after native mode: its prompt is rendered by 'llamacpp'" in out
    assert "/apply-template takes messages and tools" in out


# --- token ids, and servers that refuse ------------------------------------------------------------------------------


def test_of_token_ids_the_text_is_shown(capsys, write, upstream):
    upstream.about = VLLM
    strings = ["get_weather", "Ġok", "<|im_start|>", "assistant", "Ċ"]
    rendered = {"tokens": [7, 8, 1, 2, 3], "token_strs": strings, "max_model_len": 4096}
    begun = {"tokens": [4, 5], "token_strs": ["<tool_call>", 'Ċ{"name":Ġ"'], "max_model_len": 4096}
    path = write(tool_choice="required")
    text = 'get_weather ok<|im_start|>assistant\n<tool_call>\n{"name": "\n'
    for flags, shown in (([], text), (["--ids"], "[7, 8, 1, 2, 3, 4, 5]\n")):
        upstream.play(unary(rendered), unary(begun))
        status, out, _ = run(capsys, path, "--base-url", upstream.url, "--api-key", "sk-mine", *flags)
        assert (status, out) == (0, shown)
    assert {request.path for request in upstream.seen} == {"/tokenize"}
    assert {request.headers["authorization"] for request in upstream.seen} == {"Bearer sk-mine"}
    upstream.play(unary({key: rendered[key] for key in ("tokens", "max_model_len")}))
    status, out, err = run(capsys, write(), "--base-url", upstream.url)
    assert (status, out) == (0, "[7, 8, 1, 2, 3]\n")
    assert "note: the server reports no text of its token ids\n" in err


def test_ollama_renders_the_prompt(capsys, write, upstream):
    upstream.about = OLLAMA
    upstream.play(unary({"model": "q", "_debug_info": {"rendered_template": f"get_weather\n{PROMPT}"}}))
    status, out, _ = run(capsys, write(), "--base-url", upstream.url, "--model", "qwen3:8b")
    assert (status, out) == (0, f"get_weather\n{PROMPT}\n")
    (request,) = upstream.seen
    assert request.path == "/api/chat"
    assert request.json["_debug_render_only"] is True
    assert request.json["model"] == "qwen3:8b"


def test_the_environment_names_the_server_before_a_config_that_is_found(capsys, write, upstream, monkeypatch, tmp_path):
    found = tmp_path / "promptools.toml"
    found.write_text('[providers.found]\nkind = "ollama"\nbase_url = "http://127.0.0.1:9/v1"\n')
    path = write()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", upstream.url)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-mine")
    upstream.about = OLLAMA
    upstream.play(unary({"model": "q", "_debug_info": {"rendered_template": f"get_weather\n{PROMPT}"}}))
    assert run(capsys, path)[:2] == (0, f"get_weather\n{PROMPT}\n")
    assert upstream.seen[0].headers["authorization"] == "Bearer sk-mine"
    status, _, err = run(capsys, path, "--config", found)
    assert status == 1
    assert "http://127.0.0.1:9/v1" in err


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (unary({"error": "model 'q' not found"}, status=404), "(HTTP 404): "),
        (unary({"message": {"role": "assistant", "content": "Hello"}}), "the server's answer holds no rendered prompt"),
    ],
)
def test_a_server_that_renders_nothing_of_use_is_told_in_one_line(capsys, write, upstream, answer, wrong):
    upstream.about = OLLAMA
    upstream.play(answer)
    status, out, err = run(capsys, write(), "--base-url", upstream.url)
    assert (status, out) == (1, "")
    assert err.startswith(f"promptools render: {upstream.url} rendered no prompt")
    assert err.count("\n") == 1
    assert wrong in err


@pytest.mark.parametrize(
    ("answer", "wrong"),
    [
        (unary({"error": "registry.ollama.ai/library/q does not support tools"}, status=400), "does not support tools"),
        (unary({"_debug_info": {"rendered_template": PROMPT}}), "the model's template does not show it the tools"),
    ],
)
def test_a_model_that_raw_mode_is_not_for_is_told_in_one_line(capsys, write, upstream, answer, wrong):
    upstream.about = OLLAMA
    upstream.play(answer)
    status, out, err = run(capsys, write(), "--base-url", upstream.url)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert wrong in err
    assert "so raw mode is not possible: leave `mode` out" in err


def test_nobody_answers(capsys, write):
    status, out, err = run(capsys, write(), "--base-url", "http://127.0.0.1:9")
    assert (status, out, err) == (1, "", "promptools render: no server answers at http://127.0.0.1:9/v1\n")
    status, out, err = run(capsys, write(), "--base-url", "http://127.0.0.1:9", "--provider", "vllm", "--no-detect")
    assert (status, out) == (1, "")
    assert err.startswith("promptools render: http://127.0.0.1:9/v1 rendered no prompt: ")


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ([], "in mode raw the server renders the prompt: name it with --base-url or --provider"),
        (["--count"], "--count counts what gpt-oss reads"),
        (["--provider", "nope"], "neither a provider"),
        (["--chat-template", "nowhere.jinja"], "chat_template: 'nowhere.jinja' cannot be read"),
        (
            ["--mode", "native", "--model", "m", "--base-url", "http://127.0.0.1:9"],
            "--base-url and --model need --mode",
        ),
    ],
)
def test_wrong_use_is_told_in_one_line(capsys, write, arguments, wrong, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, write(), *arguments)
    assert (status, out) == (2, "")
    assert err.startswith("promptools render: ")
    assert err.count("\n") == 1
    assert wrong in err


# --- a template file -------------------------------------------------------------------------------------------------


def test_a_template_file_needs_no_server(capsys, write, llamacpp):
    pytest.importorskip("jinja2")
    path = write(tool_choice="required")
    status, here, _ = run(capsys, path, "--chat-template", TEMPLATES / "hermes.jinja")
    assert status == 0
    assert here == run(capsys, path, "--base-url", llamacpp)[1]
    status, _, err = run(capsys, path, "--chat-template", TEMPLATES / "hermes.jinja", "--ids")
    assert status == 2
    assert "--ids: the prompt is rendered as text here" in err
