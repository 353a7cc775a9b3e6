"""The scenarios of a verification: test cases with their requests, and how the answers are graded.

A case yields its requests one after the other, each with an example of a correct answer, and returns the outcome.
The examples are used to estimate how long a run takes, and to test the cases. The requests do not contain the model,
limits or sampling parameters, because the user chooses these.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeAlias

from promptools.harness.verification.judge import WantedCall, judge_call_of, judge_calls, judge_format, judge_text
from promptools.harness.verification.odd_schemas import odd_tools
from promptools.probing.findings import Answer, AnsweredCall


@dataclass(frozen=True, slots=True)
class Ask:
    """A request in a test case, with an example of a correct answer."""

    body: dict[str, Any]
    right: Answer


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of a case: the share that went right (0 to 1), the first problem, and the answer that has it."""

    share: float
    failure: str = ""
    answer: Answer | None = None


Steps: TypeAlias = Generator[Ask, Answer, Outcome]


@dataclass(frozen=True, slots=True)
class Case:
    """A test case: requests to a model, and rules that grade the answers. `start` begins a new run of the case."""

    scenario: str
    name: str
    start: Callable[[], Steps]

    @property
    def id(self) -> str:
        """The name of the case in logs and reports."""
        return f"{self.scenario}: {self.name}"

    def asks(self) -> list[Ask]:
        """Return the requests, in order, that the case makes if each of them gets its example of a correct answer."""
        steps = self.start()
        asks = [next(steps)]
        try:
            while True:
                asks.append(steps.send(asks[-1].right))
        except StopIteration:
            return asks


Verdict: TypeAlias = Callable[[Answer], str]
"""A function that returns what is wrong with an answer, or an empty string if the answer is right."""


def _case(scenario: str, name: str, judge: Verdict, right: Answer, *bodies: dict[str, Any]) -> Case:
    """Return a case that sends each of `bodies`. The case passes if `judge` finds no problem in any answer."""

    def start() -> Steps:
        first = Outcome(1.0)
        for body in bodies:
            how = "streamed: " if len(bodies) > 1 and body.get("stream") else ""
            answer = yield Ask(body, right)
            failure = judge(answer)
            if failure and not first.failure:
                first = Outcome(0.0, how + failure, answer)
        return first

    return Case(scenario, name, start)


# Tools, requests and right answers.


def _tool(name: str, about: str, required: Sequence[str] | None = None, /, **parameters: Any) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": parameters,
        "required": [*parameters] if required is None else [*required],
    }
    return {"type": "function", "function": {"name": name, "description": about, "parameters": schema}}


def _text(about: str) -> dict[str, Any]:
    return {"type": "string", "description": about}


WEATHER = _tool("get_weather", "Return the current weather of a city.", city=_text("Name of the city."))
CLOCK = _tool("get_time", "Return the current local time of a city.", city=_text("Name of the city."))
MESSAGE = _tool(
    "send_message", "Send a text message to a person.", to=_text("Name of the person."), text=_text("The message.")
)
TIMER = _tool(
    "set_timer",
    "Start a kitchen timer.",
    minutes={"type": "integer", "description": "Minutes until it rings."},
    label=_text("What it is for."),
)
MONEY = _tool(
    "convert_money",
    "Convert an amount of money into another currency.",
    amount={"type": "number", "description": "The amount."},
    source=_text("Three letters of the currency of the amount."),
    target=_text("Three letters of the currency that is wanted."),
)
ORDER = _tool("track_order", "Return where an order is.", number=_text("Number of the order."))
EVENT = _tool(
    "create_event",
    "Put an event into the calendar.",
    title=_text("Title."),
    date=_text("Date, as YYYY-MM-DD."),
    guests={"type": "array", "items": {"type": "string"}, "description": "Names of the guests."},
)
LAMP = _tool(
    "set_lamp",
    "Switch a lamp.",
    room=_text("Name of the room."),
    state={"type": "string", "enum": ["on", "off"], "description": "What it shall be."},
)
NOTE = _tool("save_note", "Save a note, exactly as it is given.", text=_text("The text of the note."))
TOOLS = (WEATHER, CLOCK, MESSAGE, TIMER, MONEY, ORDER, EVENT, LAMP)


def _ask(question: str, tools: Sequence[Mapping[str, Any]], **keys: Any) -> dict[str, Any]:
    return _talk([{"role": "user", "content": question}], tools, **keys)


def _talk(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]], **keys: Any) -> dict[str, Any]:
    return {"messages": [*messages], **({"tools": [*tools]} if tools else {}), **keys}


STREAM: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


def _want(tool: dict[str, Any], **values: Any) -> WantedCall:
    return WantedCall(tool, tool["function"]["parameters"], values or None)


def _right_calls(*wanted: tuple[WantedCall, Mapping[str, Any]]) -> Answer:
    calls = (AnsweredCall(call.name, json.dumps(values, ensure_ascii=False), 1) for call, values in wanted)
    return Answer(calls=tuple(calls), choices=1, finish_reason="tool_calls")


def _right_call(tool: dict[str, Any], **values: Any) -> Answer:
    return _right_calls((_want(tool), values))


def _right_text(text: str) -> Answer:
    return Answer(content=text, choices=1, finish_reason="stop")


# One call.


def _schemas() -> Iterator[Case]:
    for tool in odd_tools():
        function = {"name": tool.name, "description": "Pass on what the user gives.", "parameters": tool.parameters}
        offered = {"type": "function", "function": function}
        wanted = WantedCall(offered, tool.meant)
        question = f"Call {tool.name} once, with these arguments: {json.dumps(tool.values, ensure_ascii=False)}"
        right = _right_calls((wanted, tool.values))
        name = f"{tool.name}, {tool.oddity}"
        yield _case("valid calls by schema", name, _calls(wanted), right, _ask(question, [offered]))


def _calls(*wanted: WantedCall) -> Verdict:
    return lambda answer: judge_calls(answer, wanted)


_CHOICES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("How warm is it in Lisbon right now?", WEATHER, {"city": "Lisbon"}),
    ("What time is it in Osaka?", CLOCK, {"city": "Osaka"}),
    ("Tell Maria that I am late.", MESSAGE, {"to": "Maria", "text": "I am late."}),
    ("Remind me in 9 minutes to take the bread out of the oven.", TIMER, {"minutes": 9, "label": "bread"}),
    ("How much are 40 euros in Japanese yen?", MONEY, {"amount": 40, "source": "EUR", "target": "JPY"}),
    ("Where is my order 5512?", ORDER, {"number": "5512"}),
    (
        "Put lunch with Ines on my calendar for 2027-02-03.",
        EVENT,
        {"title": "Lunch", "date": "2027-02-03", "guests": ["Ines"]},
    ),
    ("It is too dark in the kitchen. Switch the lamp on.", LAMP, {"room": "kitchen", "state": "on"}),
    ("Is it raining in Bergen?", WEATHER, {"city": "Bergen"}),
    ("Let Tom know that dinner is ready.", MESSAGE, {"to": "Tom", "text": "Dinner is ready."}),
)


def _right_tool() -> Iterator[Case]:
    for question, tool, values in _CHOICES:
        yield _case("right tool", question, _calls(_want(tool)), _right_call(tool, **values), _ask(question, TOOLS))


_VALUES: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    ("Start a timer of 25 minutes with the label rice.", TIMER, {"minutes": 25, "label": "rice"}),
    ("Convert 99.5 USD to CHF.", MONEY, {"amount": 99.5, "source": "USD", "target": "CHF"}),
    ("Send Noor the message: see you at six", MESSAGE, {"to": "Noor", "text": "see you at six"}),
    ("Track the order with the number A-0099-B.", ORDER, {"number": "A-0099-B"}),
    ("Switch the lamp in the bathroom off.", LAMP, {"room": "bathroom", "state": "off"}),
    (
        "Create an event with the title Review on 2026-12-09, with the guests Ada and Linus.",
        EVENT,
        {"title": "Review", "date": "2026-12-09", "guests": ["Ada", "Linus"]},
    ),
    ("Get the weather of Reykjavik.", WEATHER, {"city": "Reykjavik"}),
    ("Convert 1250 GBP to EUR.", MONEY, {"amount": 1250, "source": "GBP", "target": "EUR"}),
    ("Start a timer of 3 minutes with the label tea.", TIMER, {"minutes": 3, "label": "tea"}),
    ("Track the order with the number 000431.", ORDER, {"number": "000431"}),
)


def _right_arguments() -> Iterator[Case]:
    for question, tool, values in _VALUES:
        verdict, right = _calls(_want(tool, **values)), _right_call(tool, **values)
        yield _case("right arguments", question, verdict, right, _ask(question, [tool]))


# Several calls in one answer, streamed calls, and forced calls.


_CITIES = ("Paris", "Rome", "Cairo", "Lima", "Quito", "Hanoi", "Dakar", "Perth")
_NEXT_CITIES = (*_CITIES[1:], _CITIES[0])


def _parallel() -> Iterator[Case]:
    for number, (one, other) in enumerate(zip(_CITIES, _NEXT_CITIES, strict=True)):
        second = CLOCK if number % 2 else WEATHER
        what = "the weather of {} and the time of {}" if number % 2 else "the weather of {} and the weather of {}"
        question = f"Get {what.format(one, other)}. Make both calls in one answer."
        wanted = (_want(WEATHER, city=one), _want(second, city=other))
        right = _right_calls((wanted[0], {"city": one}), (wanted[1], {"city": other}))
        yield _case("parallel calls", f"{one} and {other}", _calls(*wanted), right, _ask(question, [WEATHER, CLOCK]))


def _streamed() -> Iterator[Case]:
    for number in (7, 18, 26, 34, 45, 58, 63, 71):
        values = {"minutes": number, "label": f"batch {number}"}
        question = f"Start a timer of {number} minutes with the label batch {number}."
        bodies = _ask(question, [TIMER, LAMP]), _ask(question, [TIMER, LAMP], **STREAM)
        verdict, right = _calls(_want(TIMER, **values)), _right_call(TIMER, **values)
        yield _case("streamed and whole", f"{number} minutes", verdict, right, *bodies)


_IDLE = (
    "Good morning! I would like to hear about the weather of Oslo.",
    "I wonder whether it is cold in Tromso.",
    "My flight to Delhi lands soon.",
    "I am packing for Nairobi.",
)


def _forced() -> Iterator[Case]:
    for question in _IDLE:
        city = question.rstrip(".").split()[-1] if "flight" not in question else "Delhi"
        right = _right_call(WEATHER, city=city)
        either = (_want(WEATHER), _want(CLOCK))

        def of_any(answer: Answer, choices: Sequence[WantedCall] = either) -> str:
            return judge_call_of(answer, choices)

        def of_one(answer: Answer, choices: Sequence[WantedCall] = either[1:]) -> str:
            return judge_call_of(answer, choices)

        any_tool = _ask(question, [WEATHER, CLOCK], tool_choice="required")
        one_tool = {"type": "function", "function": {"name": "get_time"}}
        yield _case("forced choice", f"required: {question}", of_any, right, any_tool)
        named = _ask(f"{question} I am curious.", [WEATHER, CLOCK], tool_choice=one_tool)
        yield _case("forced choice", f"get_time: {question}", of_one, _right_call(CLOCK, city=city), named)


# Answers without a call, and structured output.


_FACTS = (
    ("What is the capital of France?", "Paris"),
    ("How many days does a week have?", "seven|7"),
    ("Which planet do we live on?", "Earth"),
    ("What is the opposite of hot?", "cold"),
    ("How much is 2 plus 3?", "5|five"),
    ("Which animal says meow?", "cat"),
    ("What color is the sky on a clear day?", "blue"),
    ("In which language is the word 'bonjour'?", "French"),
)


def _restraint() -> Iterator[Case]:
    for question, says in _FACTS:
        right = _right_text(f"It is {says.partition('|')[0]}.")
        yield _case("restraint", question, _says(says), right, _ask(question, [TIMER, LAMP, ORDER]))
    for question, says in _FACTS[:2]:
        right = _right_text(f"It is {says.partition('|')[0]}.")
        body = _ask(f"Answer in a sentence: {question}", [TIMER, LAMP], tool_choice="none")
        yield _case("restraint", f"tool_choice none: {question}", _says(says), right, body)


def _says(says: str) -> Verdict:
    return lambda answer: judge_text(answer, says)


_PEOPLE = (
    ("Ada", 36, True),
    ("Boris", 41, False),
    ("Chen", 29, True),
    ("Dora", 53, False),
    ("Emil", 62, True),
    ("Fatima", 24, False),
    ("Goran", 47, True),
    ("Hana", 38, False),
)


def _structured() -> Iterator[Case]:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "age": {"type": "integer"}, "member": {"type": "boolean"}},
        "required": ["name", "age", "member"],
        "additionalProperties": False,
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}}
    for name, age, member in _PEOPLE:
        values = {"name": name, "age": age, "member": member}
        state = "a member" if member else "not a member"
        question = f"{name} is {age} years old and {state} of the club. Return name, age and member as JSON."

        def judge(answer: Answer, values: Mapping[str, Any] = values) -> str:
            return judge_format(answer, schema, values)

        body = _ask(question, [], response_format=wanted)
        yield _case("structured output", name, judge, _right_text(json.dumps(values)), body)


# Conversations.


_RESULTS = (
    ("14 degrees and fog", "fog|14"),
    ("31 degrees and a clear sky", "31|clear"),
    ("-3 degrees and snow", "snow|-3"),
    ("22 degrees and a storm", "storm|22"),
    ("9 degrees and drizzle", "drizzle|9"),
    ("27 degrees and haze", "haze|27"),
    ("18 degrees and hail", "hail|18"),
    ("5 degrees and sleet", "sleet|5"),
)


def _called(call_id: str, tool: dict[str, Any], result: str, **values: Any) -> list[dict[str, Any]]:
    """Return two messages: one with a call, and one with the result of the call."""
    function = {"name": tool["function"]["name"], "arguments": json.dumps(values)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]


def _results() -> Iterator[Case]:
    for number, (city, (result, says)) in enumerate(zip(_CITIES, _RESULTS, strict=True)):
        question = {"role": "user", "content": f"How is the weather in {city}?"}
        called = _called(f"call{number:05}", WEATHER, f"{city}: {result}", city=city)
        right = _right_text(f"In {city} there are {result}.")
        yield _case("results in the history", city, _says(says), right, _talk([question, *called], [WEATHER, CLOCK]))


def _turns() -> Iterator[Case]:
    for first in range(6):
        topics = [(_CITIES[(first + step) % 8], *_RESULTS[(first + 3 * step) % 8]) for step in range(4)]
        yield Case("eight turns", f"from {topics[0][0]}", _conversation(topics))


def _conversation(topics: Sequence[tuple[str, str, str]]) -> Callable[[], Steps]:
    """Return a function that begins a conversation with two turns for each topic: the call, then the answer.

    If the model does not make the right call for a topic, both of the topic's turns count as wrong. The topic's
    question is then left out of the rest of the conversation.
    """

    def start() -> Steps:
        messages: list[dict[str, Any]] = []
        right, first = 0, Outcome(1.0)
        for number, (city, result, says) in enumerate(topics, 1):
            question = {"role": "user", "content": f"How is the weather in {city} now?"}
            answer = yield Ask(_talk([*messages, question], [WEATHER, CLOCK]), _right_call(WEATHER, city=city))
            failure = judge_calls(answer, [_want(WEATHER, city=city)])
            if failure:
                first = first if first.failure else Outcome(0.0, f"turn {2 * number - 1}: {failure}", answer)
                continue
            messages += [question, *_called(f"call{number:05}", WEATHER, f"{city}: {result}", city=city)]
            answer = yield Ask(_talk(messages, [WEATHER, CLOCK]), _right_text(f"There are {result}."))
            failure = judge_text(answer, says)
            if failure and not first.failure:
                first = Outcome(0.0, f"turn {2 * number}: {failure}", answer)
            right += 1 if failure else 2
            messages.append({"role": "assistant", "content": answer.content or f"There are {result}."})
        return Outcome(right / (2 * len(topics)), first.failure, first.answer)

    return start


_PARAGRAPHS = 90
"""Number of log entries in a prompt of the scenario `long context`, one on each line.

They have about 3,000 tokens in total, which fit into the context of most servers.
"""


def _long_context() -> Iterator[Case]:
    for number, place in enumerate((0, 18, 36, 54, 72, 89)):
        order = f"{4100 + 137 * number}"
        lines = [f"Log entry {line}: the warehouse moved {line * 7 % 90 + 5} boxes to shelf {line % 17}, all in order."
                 for line in range(_PARAGRAPHS)]  # fmt: skip
        lines.insert(place, f"The number of the order of Ms. Okafor is {order}.")
        messages = [
            {"role": "system", "content": "These are the notes of the day:\n" + "\n".join(lines)},
            {"role": "user", "content": f"Question {number + 1}: track the order of Ms. Okafor."},
        ]
        verdict, right = _calls(_want(ORDER, number=order)), _right_call(ORDER, number=order)
        yield _case("long context", f"a fact in line {place + 1}", verdict, right, _talk(messages, [ORDER, WEATHER]))


_ODD_TEXTS = {
    "emoji": "Party 🎉 at 👩‍🚀's place",
    "right to left": "שלום and مرحبا",
    "Chinese": "今天天气很好",
    "combining marks": "a̐éö̲ and e\u0301",
    "quotes": "She said \"yes\" and 'no'",
    "backslashes": r"C:\new\table\u0041",
    "line breaks": "first line\nsecond line\n\nlast line",
    "braces and tags": 'a {"b": [1]} and <b>bold</b>',
    "beyond the basic plane": "𝒳 ≤ 𝓨 𐍈 𠮷",
    "German quotes": "„Größe“ – 20 °C",
}


def _unicode() -> Iterator[Case]:
    for number, (name, text) in enumerate(_ODD_TEXTS.items()):
        question = f"Save this text as a note, exactly as it is between the lines.\n---\n{text}\n---"
        verdict = _calls(replace(_want(NOTE, text=text), exact=True))
        body = _ask(question, [NOTE], **(STREAM if number % 2 else {}))
        yield _case("odd Unicode", name, verdict, _right_call(NOTE, text=text), body)


SCENARIOS: dict[str, Callable[[], Iterable[Case]]] = {
    "valid calls by schema": _schemas,
    "right tool": _right_tool,
    "right arguments": _right_arguments,
    "parallel calls": _parallel,
    "streamed and whole": _streamed,
    "forced choice": _forced,
    "restraint": _restraint,
    "structured output": _structured,
    "results in the history": _results,
    "eight turns": _turns,
    "long context": _long_context,
    "odd Unicode": _unicode,
}


def cases(names: Iterable[str] = tuple(SCENARIOS)) -> list[Case]:
    """Return the cases of the named scenarios: the first case of each scenario, then the second of each, and so on.

    The beginning of the list therefore covers all scenarios.
    """
    rows = zip_longest(*(SCENARIOS[name]() for name in names))
    return [case for row in rows for case in row if case is not None]


def suite_digest() -> str:
    """Return a digest of all requests and right answers. Only runs whose digests are equal can be compared."""
    asked = [[case.id, [[ask.body, str(ask.right)] for ask in case.asks()]] for case in cases()]
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:12]
