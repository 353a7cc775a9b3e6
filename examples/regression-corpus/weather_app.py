"""The app whose model's replies are kept: it asks a model that has one tool."""

from typing import Any

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Tell the weather of a city.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city"],
            },
        },
    }
]


def ask(client: Any, question: str) -> Any:
    """Ask the model."""
    return client.chat.completions.create(
        model="qwen3:8b", messages=[{"role": "user", "content": question}], tools=TOOLS
    )
