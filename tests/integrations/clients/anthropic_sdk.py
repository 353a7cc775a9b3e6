"""Anthropic's SDK: its runner of tools."""

import anthropic
from weather_tool import KEY, QUESTION, TURNS, get_weather


def messages(address, model, stream):
    with anthropic.Anthropic(base_url=address, api_key=KEY, max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model=model,
            max_tokens=1000,
            max_iterations=TURNS,
            messages=[{"role": "user", "content": QUESTION}],
            tools=[anthropic.beta_tool(get_weather)],
            stream=stream,
        )
        for turn in runner:
            last = turn.get_final_message() if stream else turn
        return "".join(block.text for block in last.content if block.type == "text")


WAYS = {"messages": messages}
