"""OpenAI's SDK: `parse` and its helpers for streams, and a tool that is demanded."""

import openai
from weather_form import KEY, QUESTION, Weather

MESSAGES = [{"role": "user", "content": QUESTION}]
FORCED = {
    "tools": [openai.pydantic_function_tool(Weather)],
    "tool_choice": {"type": "function", "function": {"name": "Weather"}},
}


def completed(address, model, stream, **form):
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        request = {"model": model, "messages": MESSAGES, **form}
        if not stream:
            return client.chat.completions.parse(**request).choices[0].message
        with client.chat.completions.stream(**request) as events:
            return events.get_final_completion().choices[0].message


def chat(address, model, stream):
    return completed(address, model, stream, response_format=Weather).parsed


def forced(address, model, stream):
    (call,) = completed(address, model, stream, **FORCED).tool_calls
    return call.function.parsed_arguments


def responses(address, model, stream):
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        request = {"model": model, "input": QUESTION, "text_format": Weather}
        if not stream:
            return client.responses.parse(**request).output_parsed
        with client.responses.stream(**request) as events:
            return events.get_final_response().output_parsed


WAYS = {"`chat.completions.parse`": chat, "`responses.parse`": responses}
CALLS = {"`pydantic_function_tool`, named": forced}
