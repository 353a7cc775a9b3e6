"""Ollama's SDK."""

import ollama
from weather_tool import QUESTION, TURNS, get_weather


def chat(address, model, stream):
    with ollama.Client(host=address) as client:
        return run(client, model, stream)


def run(client, model, stream):
    messages = [{"role": "user", "content": QUESTION}]
    for _ in range(TURNS):
        reply = client.chat(model=model, messages=messages, tools=[get_weather], stream=stream)
        parts = [part.message for part in (reply if stream else [reply])]
        calls = [call for part in parts for call in part.tool_calls or ()]
        text = "".join(part.content or "" for part in parts)
        if not calls:
            return text
        messages.append({"role": "assistant", "content": text, "tool_calls": calls})
        for call in calls:
            result = get_weather(**call.function.arguments)
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})
    return None


WAYS = {"ollama": chat}
