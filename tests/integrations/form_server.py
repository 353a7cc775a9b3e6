"""A server that answers as its models do, by their names, in every API, and enforces no form: see `test_forms.py`."""

import json
from itertools import count

from promptools.testing.scripted_server import (
    PROBE_USER_AGENT,
    HttpAnswer,
    ModelReply,
    ScriptedServer,
    SeenRequest,
    json_answer,
)

WANTED = {"city": "Paris", "degrees": 18}
PLAIN = json.dumps(WANTED)
ANSWERS = {
    "plain": PLAIN,
    "fenced": f"```json\n{PLAIN}\n```",
    "sentence": f"Here is the weather:\n\n{PLAIN}\n\nLet me know whether you need another city!",
    "slip": "{'city': 'Paris', 'degrees': 18,}",
}
"""What the models say, by the word that their names begin with."""
CALLING = "calling"
"""A model that makes the call that a request demands."""
USAGE = {"input_tokens": 3, "output_tokens": 20}


class FormServer(ScriptedServer):
    def answer(self, seen: SeenRequest) -> HttpAnswer:
        if seen.headers["user-agent"] == PROBE_USER_AGENT or seen.method != "POST":
            return super().answer(seen)
        self.requests.append(seen)
        body = seen.json
        word = body["model"].partition("-")[0]
        return WRITERS[seen.path](body, ANSWERS.get(word), body.get("stream", seen.path == "/api/chat"))


def tool_name(body) -> str:
    """Return the name of the only tool that a request offers."""
    (tool,) = body["tools"]
    return tool.get("function", tool)["name"]


def chat(body, text, stream):
    calls = [(tool_name(body), WANTED)] if text is None else []
    return ModelReply(text, calls).answer({"stream": stream})


def responses(body, text, stream):
    if text is None:
        item = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": tool_name(body), "arguments": PLAIN}
    else:
        content = [{"type": "output_text", "text": text, "annotations": []}]
        item = {"type": "message", "id": "msg_1", "role": "assistant", "content": content}
    item["status"] = "completed"
    usage = USAGE | {"total_tokens": 23}
    usage |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    told = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "text": body.get("text"), "usage": usage}
    response = {"id": "resp_1", "object": "response", "created_at": 1, "model": body["model"], **told}
    done = {**response, "status": "completed", "output": [item]}
    if not stream:
        return json_answer(done)
    numbers = count()
    where = {"output_index": 0, "item_id": item["id"]}
    events = [("created", {"response": {**response, "status": "in_progress", "output": []}})]
    if text is None:
        events += [
            ("output_item.added", where | {"item": item | {"arguments": "", "status": "in_progress"}}),
            *(("function_call_arguments.delta", where | {"delta": piece}) for piece in cut(PLAIN)),
            ("function_call_arguments.done", where | {"arguments": PLAIN, "name": item["name"]}),
        ]
    else:
        where["content_index"] = 0
        (part,) = item["content"]
        events += [
            ("output_item.added", where | {"item": item | {"content": [], "status": "in_progress"}}),
            ("content_part.added", where | {"part": part | {"text": ""}}),
            *(("output_text.delta", where | {"delta": piece, "logprobs": []}) for piece in cut(text)),
            ("output_text.done", where | {"text": text, "logprobs": []}),
            ("content_part.done", where | {"part": part}),
        ]
    events += [("output_item.done", where | {"item": item}), ("completed", {"response": done})]
    return named_events((f"response.{name}", data | {"sequence_number": next(numbers)}) for name, data in events)


def messages(body, text, stream):
    if text is None:
        block = {"type": "tool_use", "id": "toolu_1", "name": tool_name(body), "input": WANTED}
        start, deltas = block | {"input": {}}, [{"type": "input_json_delta", "partial_json": p} for p in cut(PLAIN)]
    else:
        block = {"type": "text", "text": text}
        start, deltas = block | {"text": ""}, [{"type": "text_delta", "text": piece} for piece in cut(text)]
    end = {"stop_reason": "tool_use" if text is None else "end_turn", "stop_sequence": None}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": body["model"], "usage": USAGE}
    if not stream:
        return json_answer(message | end | {"content": [block]})
    return named_events([
        ("message_start", {"message": message | {"content": [], "stop_reason": None, "stop_sequence": None}}),
        ("content_block_start", {"index": 0, "content_block": start}),
        *(("content_block_delta", {"index": 0, "delta": delta}) for delta in deltas),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": end, "usage": USAGE}),
        ("message_stop", {}),
    ])  # fmt: skip


def ollama(body, text, stream):
    pieces = [*cut(text), ""] if stream else [text]
    lines = [
        {"model": body["model"], "created_at": "2026-01-01T00:00:00Z", "done": False}
        | {"message": {"role": "assistant", "content": piece}}
        for piece in pieces
    ]
    lines[-1] |= {"done": True, "done_reason": "stop"}
    return HttpAnswer(pieces=tuple(json.dumps(line).encode() + b"\n" for line in lines), type="application/x-ndjson")


def cut(text: str) -> list[str]:
    return [text[at : at + 5] for at in range(0, len(text), 5)]


def named_events(events) -> HttpAnswer:
    """Return a stream of events, whose names are also their types."""
    pieces = (f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n".encode() for name, data in events)
    return HttpAnswer(pieces=tuple(pieces), type="text/event-stream")


WRITERS = {
    "/v1/chat/completions": chat,
    "/v1/responses": responses,
    "/v1/messages": messages,
    "/api/chat": ollama,
}
