"""Drop-in: the official client's class, one import changed.

The server here is a real llama.cpp on a scripted model that breaks the server's own tool parser: straight at it, this
conversation ends in HTTP 500. Give your own server instead: python examples/drop_in.py http://localhost:8000/v1 MODEL
"""

import json
import sys

from promptools import OpenAI  # was: from openai import OpenAI
from promptools.lab import weather
from promptools.lab.llamacpp_server import serve

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Tell the current weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


def get_weather(city):
    return f"{city}: clear sky, 18 degrees"


def main(base_url, model):
    client = OpenAI(base_url=base_url, api_key="none")
    messages = [{"role": "user", "content": "What is the weather in Paris right now?"}]
    while True:
        reply = client.chat.completions.create(model=model, messages=messages, tools=[TOOL])
        message = reply.choices[0].message
        messages.append(message)
        if not message.tool_calls:
            break
        for call in message.tool_calls:
            print("call:  ", call.function.name, call.function.arguments)
            result = get_weather(**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    print("answer:", message.content)


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*sys.argv[1:])
    else:
        with serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss") as server:
            main(server.base_url, server.name)
