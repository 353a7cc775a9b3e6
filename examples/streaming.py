"""Streaming: reasoning and words as they come, each call whole and checked, then the run to its end.

The server is a real llama.cpp on a scripted model; its native stream breaks off in the middle of the call, and the
prompted one goes on in the same stream.
"""

from promptools import CallEvent, OpenAI, ReasoningEvent, ResultEvent, TextEvent, Transcript, run_tools
from promptools.lab import weather
from promptools.lab.llamacpp_server import serve

QUESTION = [{"role": "user", "content": weather.QUESTION}]


def by_hand(client, model):
    """Read the chunks of one reply, as with the official client."""
    stream = client.chat.completions.create(model=model, messages=QUESTION, tools=[weather.TOOL], stream=True)
    for chunk in stream:
        delta = chunk.choices[0].delta
        if thought := getattr(delta, "reasoning_content", None):
            print(thought, end="", flush=True)
        if delta.content:
            print(delta.content, end="", flush=True)
        for call in delta.tool_calls or ():
            print(f"\ncall: {call.function.name}({call.function.arguments})")
    print("finish:", chunk.choices[0].finish_reason)


def get_weather(city: str) -> str:
    """Tell the current weather of a city."""
    return f"{city}: clear sky, 18 degrees"


def to_its_end(client, model):
    """Let `run_tools` call the function and go on until the model answers."""
    for event in run_tools(client, QUESTION, [get_weather], model=model, stream=True):
        match event:
            case TextEvent(text) | ReasoningEvent(text):
                print(text, end="", flush=True)
            case CallEvent(call):
                print(f"\ncall: {call.name}({call.arguments_json})")
            case ResultEvent(result):
                print("result:", result.content)
            case Transcript(iterations=replies):
                print(f"\n({replies} replies)")


if __name__ == "__main__":
    with serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss") as server:
        client = OpenAI(base_url=server.base_url, api_key="none")
        by_hand(client, server.name)
        to_its_end(client, server.name)
