"""What every program of this folder asks for."""

from pydantic import BaseModel

QUESTION = "What is the weather in Paris right now? Answer in JSON."
KEY = "none"


class Weather(BaseModel):
    """The weather in a city."""

    city: str
    degrees: int
