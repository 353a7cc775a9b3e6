"""What every client's program asks and offers."""

QUESTION = "What is the weather in Paris right now?"
TURNS = 5
"""The most requests of one round trip."""
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string", "description": "Name of the city."}},
    "required": ["city"],
    "additionalProperties": False,
}
KEY = "none"


def get_weather(city: str) -> str:
    """Tell the current weather of a city.

    Args:
        city: Name of the city.
    """
    return f"{city}: clear sky, 18 degrees"
