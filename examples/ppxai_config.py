"""A ppxai-config.json as it stands: which provider, which model, which mode is its business, not the code's."""

from pathlib import Path

from promptools import OpenAI, load_config, resolve
from promptools.lab import weather
from promptools.lab.llamacpp_server import serve

CONFIG = Path(__file__).with_name("ppxai-config.json")


def explain():
    """Say what the config means for each provider, without asking a server."""
    config = load_config(CONFIG)
    for name in config.providers:
        target = resolve(provider=name, config=config)
        print(f"{name}: {target.model} at {target.base_url}, modes {', '.join(target.profile.modes)}")


def ask(base_url):
    """Ask the default provider's default model; `base_url` stands in for the address in the file."""
    client = OpenAI(config=CONFIG, provider="local-gpt-oss", base_url=base_url)
    raw = client.chat.completions.with_raw_response.create(
        model="default", messages=[{"role": "user", "content": weather.QUESTION}], tools=[weather.TOOL]
    )
    call = raw.parse().choices[0].message.tool_calls[0]
    print(call.function.name, call.function.arguments, "in", raw.headers["x-promptools-mode"], "mode")


if __name__ == "__main__":
    explain()
    with serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss") as server:
        ask(server.base_url)
