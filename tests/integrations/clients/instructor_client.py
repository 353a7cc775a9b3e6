"""instructor, for which the call itself is the answer."""

import instructor
import openai
from pydantic import BaseModel
from weather_tool import KEY, QUESTION, get_weather


class GetWeather(BaseModel):
    """Tell the current weather of a city."""

    city: str


def way(mode):
    def ask(address, model, stream):
        with openai.OpenAI(base_url=f"{address}/v1", api_key=KEY, max_retries=0) as client:
            question = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_retries": 0}
            patched = instructor.from_openai(client, mode=mode)
            if stream:
                for partial in patched.create_partial(response_model=GetWeather, **question):
                    city = partial.city
            else:
                city = patched.create(response_model=GetWeather, **question).city
            return get_weather(city)

    return ask


WAYS = {"chat": way(instructor.Mode.TOOLS), "responses": way(instructor.Mode.RESPONSES_TOOLS)}
