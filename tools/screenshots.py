"""Make the pictures of the inspector in docs/img: `promptools serve --inspect` over a real llama.cpp, in Chromium.

python tools/screenshots.py
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import environments
import httpx
from playwright.sync_api import Page, sync_playwright
from recipes.recipe import CannotMakeError

from promptools.lab import weather
from promptools.lab.llamacpp_server import serve

FOLDER = Path(__file__).parents[1] / "docs" / "img"
SIZE = {"width": 1120, "height": 760}
MODEL = "gpt-oss-20b"
NOT_QUITE = """<think>Two cities, so two calls.</think>Let me look.
<tool_call>
{"name": "get_weather", "arguments": {"city": "Oslo", "unit": "celsius",}}
</tool_call>
<tool_call>
{"name": "getWeather", "arguments": {'city': 'Bergen'}
</tool_call>"""


@contextmanager
def proxy(base_url: str) -> Iterator[str]:
    """Start a proxy with the inspector, and yield its URL."""
    command = [sys.executable, "-m", "promptools", "serve", "--base-url", base_url, "--port", "0", "--inspect"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        url = next(line.split()[1] for line in lines if line.startswith("inspector"))
        next(line for line in lines if line.startswith("listening"))
        try:
            yield url.removesuffix("/inspect")
        finally:
            process.terminate()


def ask(url: str, question: str, **keys: Any) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": question}], **keys}
    httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30).raise_for_status()


def picture(page: Page, name: str) -> None:
    path = FOLDER / f"{name}.png"
    page.screenshot(path=path)
    print(f"{path}: {path.stat().st_size // 1024} KiB")


def take(page: Page, url: str, scheme: str) -> None:
    """Take the pictures of one colour scheme."""
    page.goto(f"{url}/inspect")
    page.click("#list li >> nth=1")
    page.locator(".raw pre").last.wait_for()
    page.locator(".prompt pre").last.evaluate("prompt => { prompt.style.maxHeight = '8em'; }")
    page.locator(".send").last.evaluate("send => send.scrollIntoView()")
    picture(page, f"inspector-{scheme}")
    if scheme == "dark":
        return
    page.evaluate("document.querySelector('#detail').scrollTop = 0")
    picture(page, "inspector-why")
    page.keyboard.press("b")
    page.fill("#bench-text", NOT_QUITE)
    page.fill("#bench-tools", f"[{httpx.Request('POST', url, json=weather.TOOL).content.decode()}]")
    page.wait_for_selector("#bench-result .call-card >> nth=1")
    picture(page, "inspector-bench")


def main() -> int:
    try:
        program = environments.path_of("chromium")
    except CannotMakeError as error:
        print(f"Chromium cannot be installed: {error}")
        return environments.UNAVAILABLE
    FOLDER.mkdir(exist_ok=True)
    script = weather.gpt_oss_script()
    with serve(script, template="harmony", name=MODEL) as server, proxy(server.base_url) as url:
        ask(url, "Hi")
        ask(url, weather.QUESTION, tools=[weather.TOOL], stream=True)
        ask(url, "And in Bergen?", tools=[weather.TOOL])
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=str(program), args=["--no-sandbox", "--no-zygote"])
            for scheme in ("light", "dark"):
                context = browser.new_context(viewport=SIZE, color_scheme=scheme, locale="en-GB")
                take(context.new_page(), url, scheme)
            browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
