"""Two real llama.cpp servers before one proxy, asked by the real SDK: each by its models' names, then one dies."""

import openai
import pytest
from serving import serving

from promptools.lab import weather
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.profiles import Config, Model, Provider, ProxyOptions
from promptools.proxy import Proxy

pytestmark = pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")

ASK = {"messages": [{"role": "user", "content": weather.QUESTION}], "tools": [weather.TOOL]}


def call_of(client, name):
    message = client.chat.completions.create(model=name, **ASK).choices[0].message
    (call,) = message.tool_calls
    return call.function.name


def streamed_call_of(client, name):
    chunks = [chunk for chunk in client.chat.completions.create(model=name, stream=True, **ASK) if chunk.choices]
    calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
    return "".join(call.function.name or "" for call in calls)


def test_two_real_servers_and_the_death_of_one(caplog):
    with (
        serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss-20b") as gpu,
        serve(weather.hermes_script(), name="qwen3-8b") as laptop,
    ):
        providers = {
            "gpu": Provider("gpu", kind="llamacpp", base_url=gpu.base_url, failover=("laptop/qwen3-8b",)),
            "laptop": Provider(
                "laptop", kind="llamacpp", base_url=laptop.base_url, models={"qwen3-8b": Model("qwen3-8b", ("small",))}
            ),
        }
        options = ProxyOptions(models={"careful": ("gpu/gpt-oss-20b", "laptop/qwen3-8b")})
        app = Proxy(config=Config(default_provider="gpu", providers=providers, proxy=options))
        with (
            serving(app) as port,
            openai.OpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="x", max_retries=0) as client,
        ):
            owners = {model.id: model.owned_by for model in client.models.list()}
            assert owners == {"gpt-oss-20b": "gpu", "qwen3-8b": "laptop", "small": "laptop", "careful": "gpu"}
            assert client.models.retrieve("small").owned_by == "laptop"
            names = ("gpt-oss-20b", "small", "laptop/qwen3-8b", "careful")
            assert [call_of(client, name) for name in names] == ["get_weather"] * 4
            gpu.stop()
            caplog.clear()
            assert call_of(client, "careful") == "get_weather"
            assert streamed_call_of(client, "gpt-oss-20b") == "get_weather"
            message = next(line for line in caplog.messages if "the request goes to" in line)
            assert f"provider 'gpu' at {gpu.base_url} failed (ConnectError" in message
            assert {model.owned_by for model in client.models.list()} == {"laptop"}
            with pytest.raises(openai.NotFoundError):
                client.models.retrieve("gpu/gpt-oss-20b")
