"""langchain's `with_structured_output`, of its models of OpenAI, Anthropic and Ollama."""

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
from weather_form import KEY, QUESTION, Weather


def of_openai(address, model, **more):
    return ChatOpenAI(model=model, base_url=f"{address}/v1", api_key=KEY, max_retries=0, **more)


def of_responses(address, model):
    return of_openai(address, model, use_responses_api=True)


def of_anthropic(address, model):
    return ChatAnthropic(model=model, base_url=address, api_key=KEY, max_tokens=1000, max_retries=0)


def of_ollama(address, model):
    return ChatOllama(model=model, base_url=address)


def way(connect, method):
    def ask(address, model, stream):
        chain = connect(address, model).with_structured_output(Weather, method=method)
        return [*chain.stream(QUESTION)][-1] if stream else chain.invoke(QUESTION)

    return ask


WAYS = {
    "ChatOpenAI, `json_schema`": way(of_openai, "json_schema"),
    "ChatOpenAI, `json_mode`": way(of_openai, "json_mode"),
    "ChatOpenAI (Responses), `json_schema`": way(of_responses, "json_schema"),
    "ChatAnthropic, `json_schema`": way(of_anthropic, "json_schema"),
    "ChatOllama, `json_schema`": way(of_ollama, "json_schema"),
    "ChatOllama, `json_mode`": way(of_ollama, "json_mode"),
}
CALLS = {
    "ChatOpenAI, `function_calling`": way(of_openai, "function_calling"),
    "ChatOpenAI (Responses), `function_calling`": way(of_responses, "function_calling"),
    "ChatAnthropic, `function_calling`": way(of_anthropic, "function_calling"),
}
