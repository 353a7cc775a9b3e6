"""Convert a transcript to a trajectory of mini-swe-agent, in the format `mini-swe-agent-1`.

The viewers of mini-swe-agent (as of version 2.4.6) need `info`, and read `role`, `content` and `reasoning_content` of
each message, all strings. In older viewers, a step ends with a user message, so results are written as user messages.
Data that the viewers do not read is under `extra`: the calls, and the tokens and retries of the step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import promptools
from promptools.wire.chat_decoder import reasoning_of
from promptools.wire.json_body import split_content

if TYPE_CHECKING:
    from collections.abc import Mapping

    from promptools.harness.agent.run_events import StepEvent, Transcript

FORMAT = "mini-swe-agent-1"


def trajectory(transcript: Transcript, *, submission: str | None = None, config: Any = None) -> dict[str, Any]:
    """Return the trajectory of a run as a JSON object.

    `submission` is the run's result, such as a patch; None means the text of the answer.
    """
    ended = transcript.ended
    return {
        "info": {
            "exit_status": "Submitted" if ended == "answer" else ended,
            "submission": transcript.content if submission is None else submission,
            "model_stats": {
                "instance_cost": 0.0,
                "api_calls": transcript.iterations + transcript.retries,
                "steps": transcript.iterations,
                "retries": transcript.retries,
                "usage": transcript.usage,
            },
            "promptools_version": promptools.__version__,
            "config": config or {},
        },
        "messages": list(_messages(transcript)),
        "trajectory_format": FORMAT,
    }


def _messages(transcript: Transcript) -> list[dict[str, Any]]:
    """Return the messages of the trajectory. The data of each step is attached to the message of that step.

    The steps are matched with the last assistant messages, because earlier messages may be from before the run.
    """
    names = {
        call["id"]: call["function"]["name"]
        for message in transcript.messages
        for call in message.get("tool_calls") or ()
    }
    replies = [at for at, message in enumerate(transcript.messages) if message.get("role") == "assistant"]
    steps = dict(zip(reversed(replies), reversed(transcript.steps), strict=False))
    # the conversation does not keep the reasoning of an answer, as no request needs it
    thoughts = {at: transcript.reasoning for at in replies[-1:] if transcript.steps}
    return [
        _message(message, names, steps.get(at), thoughts.get(at, "")) for at, message in enumerate(transcript.messages)
    ]


def _message(
    message: Mapping[str, Any], names: Mapping[str, str], step: StepEvent | None, reasoning: str
) -> dict[str, Any]:
    text, others = split_content(message.get("content"))
    text = "\n".join([*filter(None, [text]), *(f"[{part.get('type')}]" for part in others)])
    match message.get("role"):
        case "tool":
            own = message.get("tool_call_id")
            return {"role": "user", "content": text, "extra": {"tool_call_id": own, "tool": names.get(str(own))}}
        case "assistant":
            calls: list[dict[str, Any]] = message.get("tool_calls") or []
            shown = [f"{call['function']['name']}({call['function']['arguments']})" for call in calls]
            content = "\n".join([*filter(None, [text]), *shown])
            thought = reasoning_of(message) or reasoning
            reasons = {"reasoning_content": thought} if thought else {}
            return {"role": "assistant", "content": content, **reasons, "extra": {"tool_calls": calls, **_step(step)}}
        case role:
            return {"role": role, "content": text}


def _step(step: StepEvent | None) -> dict[str, Any]:
    if step is None:
        return {}
    retries = [{"error": retry.error, "message": retry.message, "usage": retry.usage} for retry in step.retries]
    return {
        "step": step.number,
        "finish_reason": step.finish_reason,
        "usage": step.usage,
        "seconds": round(step.seconds, 3),
        "retries": retries,
    }
