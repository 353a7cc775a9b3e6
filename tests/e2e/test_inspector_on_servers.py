"""The inspector before real servers: prompt, raw reply, attempts and response are what went over the wire."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from asking import Proxies
from browsing import Tab, chromium
from configs import told_of
from rig_ollama import BEFORE, cue
from rigs import Servers
from scenes import HARMONY_CALL, HERMES_CALL, QUESTION, THOUGHT, WEATHER

from promptools.lab.server_process import Server

Open = Callable[[Server, str], "Page"]
SYSTEM = {"role": "system", "content": "Be brief."}


class Page:
    """What the page of a proxy's inspector gets; the app asks the same proxy."""

    def __init__(self, http: httpx.Client, url: str, model: str) -> None:
        self.http, self.url, self.model = http, url, model

    def ask(self, question: str, path: str = "/v1/chat/completions", **keys: Any) -> httpx.Response:
        """Ask as an app."""
        body = {"model": self.model, "messages": [SYSTEM, {"role": "user", "content": question}], **keys}
        return self.http.post(self.url + path, json=body)

    def shown(self) -> dict[str, Any]:
        """Return what is shown of the last exchange."""
        last = self.http.get(f"{self.url}/inspect/api/exchanges").json()["exchanges"][-1]["id"]
        shown: dict[str, Any] = self.http.get(f"{self.url}/inspect/api/exchanges/{last}").json()
        return shown


@pytest.fixture
def inspected(http: httpx.Client, proxies: Proxies, tmp_path: Any) -> Open:
    """Start a proxy with an inspector before a server of a kind."""

    def start(server: Server, kind: str) -> Page:
        config = tmp_path / "promptools.toml"
        config.write_text(f"[providers.box]\n{told_of(kind, server.base_url)}", encoding="utf-8")
        url = proxies.start("--inspect", "--config", str(config))
        return Page(http, url.removesuffix("/v1"), server.name)

    return start


def raw_text(send: dict[str, Any]) -> str:
    """Return the text of a raw reply, of which every part has its meaning."""
    (choice,) = send["reply"]["choices"]
    return "".join(part["text"] for part in choice["parts"])


def parts(send: dict[str, Any], kind: str) -> list[str]:
    (choice,) = send["reply"]["choices"]
    return [part["text"] for part in choice["parts"] if part["kind"] == kind]


def calls_of(reply: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(call["name"], json.loads(call["arguments"])) for call in reply["calls"]]


PARIS = [("get_weather", {"city": "Paris"})]


@pytest.mark.vllm
@pytest.mark.parametrize("kind", ["vllm-hermes-bare"])
def test_an_exchange_that_native_mode_fails_in(
    http: httpx.Client, servers: Servers, inspected: Open, kind: str
) -> None:
    server = servers[kind]
    page = inspected(server, "vllm")
    got = page.ask(QUESTION, tools=[WEATHER])
    shown = page.shown()
    assert (shown["state"], shown["mode"], shown["attempts"]) == ("healed", "raw", 2)
    native, template, raw = shown["sends"]
    assert [send["purpose"] for send in shown["sends"]] == ["attempt", "template", "attempt"]
    assert [send["response"]["status"] for send in shown["sends"]] == [400, 200, 200]
    assert native["outcome"].startswith("no_native_tools: ")
    assert "requires --enable-auto-tool-choice" in native["response"]["text"]
    check_messages(native["prompt"], QUESTION)
    messages = json.loads(template["request"]["text"])["messages"]
    assert raw["prompt"] == {"text": rendered_by_vllm(http, server, messages)}
    assert raw_text(raw) == HERMES_CALL
    assert [json.loads(text)["name"] for text in parts(raw, "call")] == ["get_weather"]
    assert calls_of(shown["replies"][0]) == PARIS
    assert json.loads(shown["response"]["text"]) == got.json()

    streamed = page.ask(QUESTION, tools=[WEATHER], stream=True)
    shown = page.shown()
    assert shown["mode"] == "raw"
    assert raw_text(shown["sends"][-1]) == HERMES_CALL
    assert shown["response"]["text"] == streamed.text


def rendered_by_vllm(http: httpx.Client, server: Server, messages: Any) -> str:
    asked = {"model": server.name, "messages": messages, "tools": [WEATHER]}
    tokens = http.post(f"{server.url}/tokenize", json=asked).json()["tokens"]
    prompt: str = http.post(f"{server.url}/detokenize", json={"model": server.name, "tokens": tokens}).json()["prompt"]
    return prompt


def check_messages(prompt: dict[str, Any], question: str) -> None:
    """Check the prompt of native mode: the server renders it, so it is not known, and what was sent is shown."""
    assert "text" not in prompt
    assert [(entry["role"], entry["text"]) for entry in prompt["messages"]] == [
        ("system", "Be brief."),
        ("user", question),
    ]
    assert [tool["name"] for tool in prompt["tools"]] == ["get_weather"]


@pytest.mark.vllm
@pytest.mark.parametrize("kind", ["vllm-hermes"])
def test_calls_that_vllm_reads(servers: Servers, inspected: Open, kind: str) -> None:
    page = inspected(servers[kind], "vllm")
    page.ask("Talk and call?", tools=[WEATHER])
    shown = page.shown()
    assert (shown["state"], shown["mode"], shown["attempts"]) == ("ok", "native", 1)
    (send,) = shown["sends"]
    check_messages(send["prompt"], "Talk and call?")
    (choice,) = send["reply"]["choices"]
    assert [(call["name"], json.loads(call["arguments"])) for call in choice["native_calls"]] == PARIS
    assert raw_text(send).strip() == "I'll check."
    assert calls_of(shown["replies"][0]) == PARIS


@pytest.mark.ollama
def test_an_exchange_that_ollama_swallows(servers: Servers, inspected: Open) -> None:
    server = servers["ollama-go"]
    page = inspected(server, "ollama")
    question = cue("broken")
    got = page.ask(question, tools=[WEATHER])
    shown = page.shown()
    assert (shown["state"], shown["mode"], shown["attempts"]) == ("healed", "prompt", 4)
    assert [(send["purpose"], send["mode"]) for send in shown["sends"]] == [
        ("attempt", "native"),
        *([("template", "raw"), ("attempt", "raw")] * 2),
        ("attempt", "prompt"),
    ]
    native, template, raw, _, corrected, prompted = shown["sends"]
    assert native["outcome"].startswith("swallowed: ")
    check_messages(native["prompt"], question)
    assert (raw_text(native), native["reply"]["choices"][0]["native_calls"]) == ("", [])
    rendered = json.loads(template["response"]["text"])["_debug_info"]["rendered_template"]
    assert question in rendered
    assert raw["prompt"] == {"text": rendered}
    assert raw_text(raw) == HERMES_CALL.replace('"Paris"', "Paris")
    assert len(parts(raw, "malformed")) == 1
    assert "was not run" in corrected["prompt"]["text"]
    assert "<tools>" in prompted["prompt"]["messages"][0]["text"]
    assert prompted["prompt"]["tools"] == []
    assert raw_text(prompted) == BEFORE + HERMES_CALL
    assert calls_of(shown["replies"][0]) == PARIS
    assert json.loads(shown["response"]["text"]) == got.json()


@pytest.mark.ollama
def test_gpt_oss_on_ollama(servers: Servers, inspected: Open) -> None:
    page = inspected(servers["ollama-gptoss"], "ollama")
    page.ask(QUESTION, tools=[WEATHER])
    shown = page.shown()
    (send,) = shown["sends"]
    assert (shown["state"], send["mode"]) == ("ok", "harmony")
    assert send["prompt"]["text"].startswith("<|start|>system<|message|>")
    assert send["prompt"]["text"].endswith(f"<|start|>user<|message|>{QUESTION}<|end|><|start|>assistant")
    assert raw_text(send) == (THOUGHT + HARMONY_CALL).removesuffix("<|call|>")
    assert (parts(send, "reasoning"), parts(send, "call")) == (["Need the tool."], ['{"city": "Paris"}'])
    assert calls_of(shown["replies"][0]) == PARIS


@pytest.mark.ollama
@pytest.mark.chromium
def test_the_page_of_an_exchange_on_ollama(servers: Servers, inspected: Open) -> None:
    page = inspected(servers["ollama-go"], "ollama")
    page.ask(cue("broken"), tools=[WEATHER])
    with chromium() as browser:
        tab = Tab(browser, page.url)
        tab.page.wait_for_selector("#list li")
        tab.select()
        assert tab.page.locator(".timeline li").count() == 6
        shown = tab.text("#detail")
        assert "native mode: swallowed" in shown
        assert "prompt mode: answered" in shown
        native, raw = (tab.page.locator(".send", has_text=title).first for title in ("1. native mode", "3. raw mode"))
        for send in (native, raw):
            send.locator("summary", has_text="mode, attempt").click()
            send.locator("summary", has_text="Prompt").click()
        # what the server renders itself is not known, and not made up
        assert "The server renders these with its own chat template." in native.inner_text()
        assert native.locator("[aria-label='Rendered prompt']").count() == 0
        assert "<|im_start|>user\nCell: broken.<|im_end|>" in raw.locator("[aria-label='Rendered prompt']").inner_text()
        tab.close()
        assert tab.errors == []
