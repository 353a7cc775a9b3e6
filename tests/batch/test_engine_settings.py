"""What `promptools batch --engine` takes, and how requests reach an application in the same process."""

import asyncio
import json
import pickle

import pytest
from pydantic import BaseModel, ConfigDict, Field
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from promptools.batch import offline
from promptools.batch.offline import EngineSettings, engine_transport_class, read_engine_arguments
from promptools.cli import main
from promptools.errors import UsageError, install_command
from promptools.transport import installed_library


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["tensor_parallel_size=2", "enforce-eager=true"], {"tensor_parallel_size": 2, "enforce_eager": True}),
        (["kv_cache_memory_bytes=128M", "dtype=float32"], {"kv_cache_memory_bytes": "128M", "dtype": "float32"}),
        (["--max-model-len=8192"], {"max_model_len": 8192}),
        (['{"logits_processors": ["a:B"], "seed": 0}', "quantization="], {
            "logits_processors": ["a:B"], "seed": 0, "quantization": "",
        }),
        (['hf_overrides={"a": 1}', "chat_template={{ x=1 }}"], {
            "hf_overrides": {"a": 1}, "chat_template": "{{ x=1 }}",
        }),
    ],
)  # fmt: skip
def test_engine_arguments(words, expected):
    assert read_engine_arguments(words) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["in.jsonl"], "begins with 'in.jsonl' is neither a JSON object nor KEY=VALUE"),
        (["=2"], "neither"),
        (['{"a": 1'], "neither"),
        (["{a=1}"], "neither"),
        (["a-b=1", '{"a_b": 2}'], "'a_b' is given twice"),
    ],
)
def test_wrong_engine_arguments(words, message):
    with pytest.raises(UsageError, match=message):
        read_engine_arguments(words)


def test_settings_can_be_passed_to_another_process():
    settings = EngineSettings("m", {"seed": 1}, {"mode": "prompt"})
    assert pickle.loads(pickle.dumps(settings)) == settings


@pytest.fixture
def batch(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x"}}\n')

    def run(*words):
        status = main(["batch", "in.jsonl", "out.jsonl", *words])
        return status, capsys.readouterr()

    return run


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--engine", "vllm"], "--engine needs --model"),
        (["--engine-args", "seed=1"], "add --engine vllm"),
        (["--engine", "vllm", "--model", "m", "--provider", "vllm"], "--provider names a server"),
        (["--engine", "vllm", "--model", "m", "--base-url", "http://h"], "--base-url names a server"),
        (["--engine", "vllm", "--model", "m", "--api-key", "secret"], "--api-key names a server"),
        (["--engine", "vllm", "--model", "m", "--mode", "native"], "native mode needs vLLM's own parser of calls"),
        (["--engine", "vllm", "--model", "m"], install_command("vllm")),
    ],
)
def test_arguments_that_contradict_each_other(batch, monkeypatch, words, message):
    monkeypatch.setattr(offline, "find_spec", lambda _: None)
    status, printed = batch(*words)
    assert status == 2
    assert message in printed.err
    assert "secret" not in printed.err


def test_a_dry_run_starts_no_engine(batch):
    status, printed = batch("--engine", "vllm", "--model", "m", "--dry-run", "--json")
    described = json.loads(printed.out)
    assert (status, described["server"], described["models"]) == (0, "none: vllm in this process", ["m"])


class Body(BaseModel):
    model_config = ConfigDict(extra="allow")
    prompt: str
    limit: int = Field(1, alias="max")


async def complete(request: Body):
    return JSONResponse({"received": await request.json()})


async def fail(_request):
    raise RuntimeError("out of memory")


def exchange(path, body):
    library = installed_library()
    app = Starlette(
        routes=[Route("/v1/completions", complete, methods=["POST"]), Route("/fail", fail, methods=["POST"])]
    )
    transport = engine_transport_class(library)(app, library)

    async def post():
        async with library.module.AsyncClient(transport=transport, base_url="http://vllm.invalid") as client:
            return await client.post(path, content=body)

    response = asyncio.run(post())
    return response.status_code, response.text


def test_a_field_that_the_engine_does_not_know_is_refused():
    status, text = exchange("/v1/completions", json.dumps({"prompt": "x", "guided_json": {}, "beams": 2}))
    error = json.loads(text)["error"]
    assert (status, error["code"], error["param"]) == (400, 400, "beams")
    assert "'beams', 'guided_json'" in error["message"]


def test_all_other_requests_reach_the_application():
    body = {"prompt": "x", "max": 3, "limit": 2, "user": "me", "metadata": {}}
    assert exchange("/v1/completions", json.dumps(body)) == (200, json.dumps({"received": body}, separators=(",", ":")))
    assert exchange("/fail", "no JSON")[0] == 500
