"""Fallback: what happens when the server's parser breaks, and three ways to see it.

The server is a real llama.cpp on a scripted gpt-oss. Its native call has junk in the header, as the real model has been
seen to write it, and the server answers HTTP 500. promptools then asks in harmony mode.
"""

import logging

import openai

from promptools import Breaker, OpenAI, Reply
from promptools.lab import weather
from promptools.lab.llamacpp_server import serve

ASK = {"messages": [{"role": "user", "content": weather.QUESTION}], "tools": [weather.TOOL]}


def straight(base_url, model):
    """The official client alone gets the server's error."""
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
    try:
        client.chat.completions.create(model=model, **ASK)
    except openai.InternalServerError as error:
        print("straight:", error)


def healed(base_url, model):
    """With promptools the call comes, and the reply says how."""
    replies: list[Reply] = []
    breaker = Breaker(threshold=2, cool_down=60)  # two failures within a minute: native mode rests for a minute
    client = OpenAI(base_url=base_url, api_key="none", breaker=breaker, on_reply=replies.append)

    for _ in range(3):
        raw = client.chat.completions.with_raw_response.create(model=model, **ASK)
        call = raw.parse().choices[0].message.tool_calls[0]
        print("call:", call.function.name, call.function.arguments)
        print("  headers:", raw.headers["x-promptools-mode"], raw.headers["x-promptools-attempts"])

    for reply in replies:
        print("on_reply:", [f"{each.mode}: {each.outcome}" for each in reply.trace.attempts], *reply.trace.notes)

    answer = client.chat.completions.create(model=model, **ASK, extra_body={"promptools": {"trace": True}})
    print("trace in the body:", answer.promptools["mode"], len(answer.promptools["attempts"]))


if __name__ == "__main__":
    logging.basicConfig(format="log: %(name)s: %(message)s")  # each failed send is one warning
    with serve(weather.gpt_oss_script(), template="harmony", name="gpt-oss") as server:
        straight(server.base_url, server.name)
        healed(server.base_url, server.name)
