"""`promptools batch --engine vllm`: a real engine of vLLM, on scripted models.

It is in the process of the command, or in an actor of a Ray cluster.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import environments
import pytest
from recipes.recipe import CannotMakeError
from recipes.vllm import OLD_VERSION, VERSION
from rig.vllm_batch import make_rig
from rig_vllm import Boot
from scenes import HARMONY_CALL, HERMES_CALL, THOUGHT, WEATHER

from promptools.lab.script import ScriptedReply

pytestmark = pytest.mark.vllm

SECONDS = 600
"""For a boot on a busy machine."""
UNKNOWN, MISFIT = "so nothing was done", "its arguments do not fit"
"""Phrases of what a model is told about a call of an unknown tool, and one that does not fit the schema."""
FINAL = "<|channel|>final<|message|>"


def row(custom_id, content, **body):
    body = {"messages": [{"role": "user", "content": content}], "max_tokens": 400, **body}
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": body}


def with_tool(custom_id, content, **body):
    return row(custom_id, content, tools=[WEATHER], promptools={"trace": True}, **body)


@contextlib.contextmanager
def started(rig, *options, **keys):
    process = rig.start(*options, **keys)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def run(rig, *options, **keys):
    with started(rig, *options, **keys) as process:
        out, err = process.communicate(timeout=SECONDS)
    return process.returncode, out, err


def body(result):
    assert result["response"]["status_code"] == 200, result
    return result["response"]["body"]


def calls(result):
    (choice,) = body(result)["choices"]
    return [(call["function"]["name"], call["function"]["arguments"]) for call in choice["message"]["tool_calls"]]


def attempts(result):
    return [(attempt["mode"], attempt["outcome"]) for attempt in body(result)["promptools"]["attempts"]]


def test_gpt_oss(tmp_path):
    lines = [
        ScriptedReply("Weather in Paris?", THOUGHT + HARMONY_CALL),
        ScriptedReply("Unknown in Paris?", THOUGHT + HARMONY_CALL.replace("get_weather", "look_up")),
        ScriptedReply("Unknown in Paris?", THOUGHT + HARMONY_CALL, setting=UNKNOWN),
        ScriptedReply("Say little", f"{FINAL}It is windy.<|return|>"),
    ]
    rig = make_rig(lines, installed=Boot("harmony").installed(), template="harmony", folder=tmp_path)
    rig.write([
        with_tool("call", "Weather in Paris?"),
        with_tool("corrected", "Unknown in Paris?"),
        with_tool("answer", "Say little"),
        row("plain", "Say little"),
    ])  # fmt: skip
    status, out, err = run(rig, "--json")
    assert status == 0, err
    assert (json.loads(out)["requests"], json.loads(out)["failed"]) == (4, 0)  # nothing of vLLM's is on stdout
    assert "modes for tools: harmony, prompt" in err
    results = rig.read()
    for name, tried in {"call": ["answered"], "corrected": ["unknown_tool", "answered"]}.items():
        assert calls(results[name]) == [("get_weather", '{"city": "Paris"}')]
        assert attempts(results[name]) == [("harmony", outcome) for outcome in tried]
    for name in ("answer", "plain"):
        (choice,) = body(results[name])["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("It is windy.", "stop")


MANY = 40
HERMES = [
    ScriptedReply("Weather in Paris?", HERMES_CALL),
    ScriptedReply("Number in Paris?", HERMES_CALL.replace('"Paris"', "[1, 2]")),
    ScriptedReply("Number in Paris?", HERMES_CALL, setting=MISFIT),
    ScriptedReply("Say little", "It is windy."),
    ScriptedReply("Say JSON", '{"wind": 3}'),
    *(ScriptedReply(f"Weather of City{at}?", HERMES_CALL.replace("Paris", f"City{at}")) for at in range(MANY)),
]
SCHEMA = {"type": "object", "properties": {"wind": {"type": "integer"}}, "required": ["wind"]}
CONTEXT = 4096
WRONG = {
    "too long": (400, f"This model's maximum context length is {CONTEXT} tokens."),
    "too long for tools": (400, f"This model's maximum context length is {CONTEXT} tokens."),
    "too hot": (400, "temperature must be non-negative, got -1.0"),
    "unknown": (400, "this engine does not know 'guided_json', and would ignore it; remove it"),
    "native": (400, "requires --enable-auto-tool-choice and --tool-call-parser to be set"),
    "embedding": (404, "HTTP 404"),
}
"""Status of each wrong request, and a part of its message."""


def session_of(process):
    """Return the processes of a session that are alive."""
    alive = []
    for file in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, _, session = file.read_text().rpartition(")")[2].split()[:4]
            if int(session) == process.pid and state not in "ZX":
                alive.append(int(file.parent.name))
    return alive


def check_all_end(process):
    until = time.monotonic() + 300
    while left := session_of(process):
        assert time.monotonic() < until, f"the engine outlives its process: {list(map(title_of, left))}"
        time.sleep(0.1)


def title_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0 ")
    return ""


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_for_engine(process):
    """Return the process of the engine, which has a title before the model is loaded."""
    until = time.monotonic() + SECONDS
    while not (engines := [pid for pid in session_of(process) if title_of(pid).startswith("VLLM::EngineCore")]):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.1)
    (engine,) = engines
    return engine


def wait_for_results(rig, process, number):
    log = rig.folder / "out.jsonl.part"
    until = time.monotonic() + SECONDS
    while not log.exists() or log.read_bytes().count(b'"custom_id"') < number:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < until
        time.sleep(0.01)


def check_many(results):
    for at in range(MANY):
        if (result := results.get(f"city{at}")) is not None:
            assert calls(result) == [("get_weather", json.dumps({"city": f"City{at}"}))]


def test_hermes_killed_and_run_again(tmp_path):
    rig = make_rig(HERMES, installed=Boot("hermes").installed(), template="hermes", folder=tmp_path)
    many = [with_tool(f"city{at}", f"Weather of City{at}?") for at in range(MANY)]
    native = row("native", "Say little", tools=[WEATHER], promptools={"mode": "native"})
    form = {"type": "json_schema", "json_schema": {"name": "wind", "schema": SCHEMA}}
    embedding = {"custom_id": "embedding", "url": "/v1/embeddings", "body": {"input": "x"}}
    completion = {"custom_id": "raw text", "url": "/v1/completions", "body": {"prompt": "Say little", "max_tokens": 99}}
    rig.write([
        *many,
        with_tool("raw", "Weather in Paris?", model="another"),
        row("prompt", "Weather in Paris?", tools=[WEATHER], promptools={"mode": "prompt", "trace": True}),
        with_tool("corrected", "Number in Paris?"),
        with_tool("cut", "Weather in Paris?", max_tokens=20),
        row("plain", "Say little", logprobs=True, stop=["wind"], seed=1),
        row("two", "Say little", n=2, temperature=0.5),
        row("form", "Say JSON", response_format=form),
        row("too long", "x" * CONTEXT),
        row("too long for tools", "x" * CONTEXT, tools=[WEATHER]),
        row("too hot", "Say little", temperature=-1),
        row("unknown", "Say little", guided_json=SCHEMA, user="me"),
        native,
        completion,
        embedding,
    ])  # fmt: skip
    with started(rig, "--json", context=CONTEXT) as process:
        wait_for_results(rig, process, 5)
        process.kill()
        process.wait()
        check_all_end(process)
    before = (tmp_path / "out.jsonl.part").read_bytes().count(b'"custom_id"')
    assert 5 <= before < MANY

    status, out, err = run(rig, "--json", context=CONTEXT)
    assert status == 1, err  # some requests are wrong
    assert "modes for tools: raw, prompt" in err
    earlier = json.loads(out)["earlier"]
    assert before - 1 <= earlier <= before
    results = rig.read()
    assert len(results) == MANY + 14
    check_many(results)
    check_modes(results)
    check_parameters(results)
    check_errors(results, rig.read("out.errors.jsonl"))


def check_modes(results):
    paris = [("get_weather", '{"city": "Paris"}')]
    for name, tried in {
        "raw": [("raw", "answered")],
        "prompt": [("prompt", "answered")],
        "corrected": [("raw", "malformed"), ("raw", "answered")],
    }.items():
        assert (calls(results[name]), attempts(results[name])) == (paris, tried)


def add_ray(rig):
    try:
        rig.add_ray(environments.path_of("ray"))
    except CannotMakeError as error:
        if os.environ.get("PROMPTOOLS_E2E") == "required":
            pytest.fail(f"Ray cannot be installed, and PROMPTOOLS_E2E asks for it: {error}")
        pytest.skip(f"Ray cannot be installed: {error}")


def test_in_an_actor_of_a_ray_cluster(tmp_path, monkeypatch):
    rig = make_rig(HERMES, installed=Boot("hermes").installed(), template="hermes", folder=tmp_path)
    add_ray(rig)
    monkeypatch.setenv("RAY_DEFAULT_OBJECT_STORE_MAX_MEMORY_BYTES", str(80 * 2**20))
    # Ray believes that there is a GPU, and reserves it for the actor; vLLM computes on the CPU nevertheless
    monkeypatch.setenv("RAY_OVERRIDE_RESOURCES", '{"GPU": 1}')
    rig.write([
        *(with_tool(f"city{at}", f"Weather of City{at}?") for at in range(MANY)),
        with_tool("raw", "Weather in Paris?", model="another"),
        row("prompt", "Weather in Paris?", tools=[WEATHER], promptools={"mode": "prompt", "trace": True}),
        with_tool("corrected", "Number in Paris?"),
        row("plain", "Say little", stop=["wind"]),
        row("too long", "x" * CONTEXT),
        row("unknown", "Say little", guided_json=SCHEMA),
    ])  # fmt: skip
    with started(rig, "--json", "--ray", "local", context=CONTEXT) as process:
        actor = parent_of(wait_for_engine(process))
        assert title_of(actor).startswith("ray::")
        out, err = process.communicate(timeout=SECONDS)
        check_all_end(process)
    assert process.returncode == 1, err  # some requests are wrong
    assert "1 actors" in err
    assert (json.loads(out)["requests"], json.loads(out)["failed"]) == (MANY + 6, 2)
    assert "Traceback" not in err
    results = rig.read()
    assert sum(name.startswith("city") for name in results) == MANY
    check_many(results)
    check_modes(results)
    (plain,) = body(results["plain"])["choices"]
    assert (plain["message"]["content"], plain["stop_reason"]) == ("It is ", "wind")
    problems = rig.read("out.errors.jsonl")
    assert problems.keys() == {"too long", "unknown"}
    for name, problem in problems.items():
        status, message = WRONG[name]
        assert problem["status_code"] == results[name]["response"]["status_code"] == status
        assert message in problem["message"]


def check_parameters(results):
    """Check that what requests asked for was honored."""
    (cut,) = body(results["cut"])["choices"]
    assert (cut["finish_reason"], attempts(results["cut"])) == ("length", [("raw", "truncated")])
    assert HERMES_CALL.startswith(cut["message"]["content"])
    (plain,) = body(results["plain"])["choices"]
    assert (plain["message"]["content"], plain["finish_reason"], plain["stop_reason"]) == ("It is ", "stop", "wind")
    assert "".join(token["token"] for token in plain["logprobs"]["content"]) == "It is wind"
    assert [choice["message"]["content"] for choice in body(results["two"])["choices"]] == ["It is windy."] * 2
    assert [choice["text"] for choice in body(results["raw text"])["choices"]] == ["It is windy."]
    (form,) = body(results["form"])["choices"]
    assert json.loads(form["message"]["content"]) == {"wind": 3}


def check_errors(results, problems):
    """Check what wrong requests got, in the results and in the file of errors."""
    assert {name: problem["status_code"] for name, problem in problems.items()} == {
        name: status for name, (status, _) in WRONG.items()
    }
    for name, (status, message) in WRONG.items():
        assert message in problems[name]["message"]
        assert results[name]["response"]["status_code"] == status


def test_an_older_vllm_whose_engine_is_killed(tmp_path):
    rig = make_rig(
        HERMES, installed=Boot("hermes", version=OLD_VERSION).installed(), template="hermes", folder=tmp_path
    )
    rig.write([with_tool(f"city{at}", f"Weather of City{at}?") for at in range(MANY)])
    with started(rig) as process:
        wait_for_results(rig, process, 5)
        for child in session_of(process):
            if child != process.pid:
                os.kill(child, signal.SIGKILL)
        out, err = process.communicate(timeout=SECONDS)
    assert process.returncode == 1, out
    assert "vLLM's engine has ended" in err
    assert "run the same command to continue" in err
    assert not (tmp_path / "out.jsonl").exists()
    lines = (tmp_path / "out.jsonl.part").read_text(encoding="utf-8").splitlines()
    results = [json.loads(line)["result"] for line in lines[1:]]
    assert 5 <= len(results) < MANY
    check_many({result["custom_id"]: result for result in results})


REFUSED = [
    ({"max_modellen": 1}, "no argument 'max_modellen'; did you mean 'max_model_len'?"),
    ({"port": 8000}, "no argument 'port'"),
    ({"api_key": ["secret"]}, "no argument 'api_key'"),
    ({"max_model_len": "long"}, "argument --max-model-len"),
    ({"enable_auto_tool_choice": True}, "--enable-auto-tool-choice requires --tool-call-parser"),
]
CODE = """
import json, sys
from promptools.batch.offline import EngineSettings
from promptools.batch.offline import parse_arguments
from promptools.errors import UsageError

for arguments in json.load(sys.stdin):
    try:
        print(json.dumps(parse_arguments(EngineSettings("m", arguments)).max_model_len))
    except UsageError as error:
        print(json.dumps(str(error)))
"""


@pytest.mark.parametrize("version", [VERSION, OLD_VERSION])
def test_wrong_arguments_of_the_engine(tmp_path, version):
    rig = make_rig([], installed=Boot("hermes", version=version).installed(), template="hermes", folder=tmp_path)
    given = [*(arguments for arguments, _ in REFUSED), {"max_model_len": "2k", "enforce_eager": False}]
    ran = subprocess.run(
        [str(rig.installed.python), "-c", CODE],
        env=rig.environment(),
        input=json.dumps(given),
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert ran.returncode == 0, ran.stderr
    *errors, limit = map(json.loads, ran.stdout.splitlines())
    assert limit == 2000
    for error, (_, message) in zip(errors, REFUSED, strict=True):
        assert message in error
        assert "secret" not in error
