"""OpenAI's SDK: a loop over its own types, and its helpers for streams."""

import json

import openai
from weather_tool import KEY, PARAMETERS, QUESTION, TURNS, get_weather

FUNCTION = {"name": "get_weather", "description": "Tell the weather.", "parameters": PARAMETERS, "strict": True}


def chat(address, model, stream):
    tools = [{"type": "function", "function": FUNCTION}]
    messages = [{"role": "user", "content": QUESTION}]
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        for _ in range(TURNS):
            request = {"model": model, "messages": messages, "tools": tools}
            if stream:
                with client.chat.completions.stream(**request) as events:
                    message = events.get_final_completion().choices[0].message
            else:
                message = client.chat.completions.create(**request).choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.to_dict(exclude_none=True))
            for call in message.tool_calls:
                result = get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return None


def responses(address, model, stream):
    tools = [{"type": "function", **FUNCTION}]
    asked, previous = QUESTION, None
    with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
        for _ in range(TURNS):
            request = {"model": model, "input": asked, "tools": tools}
            if previous is not None:
                request["previous_response_id"] = previous
            if stream:
                with client.responses.stream(**request) as events:
                    response = events.get_final_response()
            else:
                response = client.responses.create(**request)
            calls = [item for item in response.output if item.type == "function_call"]
            if not calls:
                return response.output_text
            previous = response.id
            results = [get_weather(**json.loads(call.arguments)) for call in calls]
            asked = [
                {"type": "function_call_output", "call_id": call.call_id, "output": result}
                for call, result in zip(calls, results, strict=True)
            ]
    return None


WAYS = {"chat": chat, "responses": responses}
