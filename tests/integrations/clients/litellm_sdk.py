"""litellm's SDK, which speaks each API by the prefix of the model."""

import json

import litellm
from weather_tool import KEY, PARAMETERS, QUESTION, TURNS, get_weather

litellm.suppress_debug_info = True
FUNCTION = {"name": "get_weather", "description": "Tell the weather.", "parameters": PARAMETERS}


def completion(prefix, path):
    def way(address, model, stream):
        messages = [{"role": "user", "content": QUESTION}]
        for _ in range(TURNS):
            reply = litellm.completion(
                model=prefix + model,
                api_base=address + path,
                api_key=KEY,
                messages=messages,
                tools=[{"type": "function", "function": FUNCTION}],
                stream=stream,
                max_retries=0,
            )
            message = (litellm.stream_chunk_builder(list(reply)) if stream else reply).choices[0].message
            if not message.tool_calls:
                return message.content
            messages.append(message.model_dump(exclude_none=True))
            for call in message.tool_calls:
                result = get_weather(**json.loads(call.function.arguments))
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
        return None

    return way


def responses(address, model, stream):
    items = [{"role": "user", "content": QUESTION}]
    for _ in range(TURNS):
        reply = litellm.responses(
            model=f"openai/{model}",
            api_base=f"{address}/v1",
            api_key=KEY,
            input=items,
            tools=[{"type": "function", **FUNCTION}],
            stream=stream,
            max_retries=0,
        )
        response = [event.response for event in reply if event.type == "response.completed"][-1] if stream else reply
        calls = [item for item in response.output if item.type == "function_call"]
        if not calls:
            return response.output_text
        items += [item.model_dump(exclude_none=True) for item in response.output]
        for call in calls:
            result = get_weather(**json.loads(call.arguments))
            items.append({"type": "function_call_output", "call_id": call.call_id, "output": result})
    return None


WAYS = {
    "chat": completion("openai/", "/v1"),
    "responses": responses,
    "messages": completion("anthropic/", ""),
    "ollama": completion("ollama_chat/", ""),
}
