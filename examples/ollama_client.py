"""The ollama package, one import changed: its client, its functions as tools, on Ollama or on any other server.

The server here is a real llama.cpp on a scripted model that breaks the server's own tool parser. Give your own server
instead: python examples/ollama_client.py http://localhost:11434 MODEL
"""

import sys

from promptools import ollama  # was: import ollama
from promptools.lab import weather
from promptools.lab.llamacpp_server import serve


def get_weather(city: str) -> str:
    """Tell the current weather of a city.

    Args:
      city: Name of the city.
    """
    return f"{city}: clear sky, 18 degrees"


TOOLS = {"get_weather": get_weather}


def main(host, model):
    with ollama.Client(host) as client:
        print("models:", *(each.model for each in client.list().models))
        print("answer:", talk(client, model))
        try:
            client.pull("qwen3:8b")
        except ollama.ResponseError as error:
            print("pull:  ", error.status_code, error.error)


def talk(client, model):
    messages = [{"role": "user", "content": "What is the weather in Paris right now?"}]
    while True:
        answer = client.chat(model, messages, tools=[get_weather], options={"temperature": 0})
        if not answer.message.tool_calls:
            return answer.message.content
        messages.append(answer.message)
        for call in answer.message.tool_calls:
            print("call:  ", call.function.name, call.function.arguments)
            result = TOOLS[call.function.name](**call.function.arguments)
            messages.append({"role": "tool", "tool_name": call.function.name, "content": result})


if __name__ == "__main__":
    if len(sys.argv) == 3:
        main(*sys.argv[1:])
    else:
        with serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss") as server:
            main(server.url, server.name)
