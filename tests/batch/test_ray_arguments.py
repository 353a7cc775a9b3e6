"""What `--ray` needs and refuses, what goes to the actors, and what the job makes of their results; without Ray."""

import asyncio
import json
import pickle
from importlib.util import find_spec

import pytest

from promptools.batch.answering import BatchAnswer
from promptools.batch.batch_job import BatchJob
from promptools.batch.input_survey import PendingRequests, survey_input
from promptools.batch.offline import EngineSettings
from promptools.batch.ray_cluster import AnsweringActor, EngineActorSettings, ServerActorSettings, chunk_plan
from promptools.cli import main
from promptools.client import OpenAI
from promptools.errors import PromptoolsError, UsageError, install_command
from promptools.profiles import load_config

KEY = "sk-4711"


@pytest.fixture
def source(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = [json.dumps({"custom_id": f"r{n}", "url": "/v1/chat/completions", "body": {"model": "m"}}) for n in (1, 2)]
    (tmp_path / "in.jsonl").write_text("\n".join([*lines, "no JSON", "", '{"custom_id": "r5"}']))
    return str(tmp_path / "in.jsonl")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--base-url", "http://localhost:9/v1", "--api-key", KEY, "--ray"], "set the key in OPENAI_API_KEY"),
        (["--base-url", f"http://me:{KEY}@localhost:9/v1", "--ray"], "set the key in OPENAI_API_KEY"),
        (["--base-url", "http://localhost:9/v1", "--actors", "2"], "--actors is for --ray"),
        (["--base-url", "http://localhost:9/v1", "--ray", "ray://10.0.0.1:10001"], "a Ray Client server"),
    ],
)
def test_arguments_that_cannot_be(source, capsys, arguments, error):
    assert main(["batch", source, "out.jsonl", *arguments]) == 2
    printed = capsys.readouterr().err
    assert error in printed
    assert KEY not in printed


def test_processes_here_are_not_for_a_cluster(source, capsys):
    assert main(["reparse", source, "out.jsonl", "--ray", "--workers", "2"]) == 2
    assert "--workers is for this machine" in capsys.readouterr().err


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
@pytest.mark.parametrize("command", [["reparse"], ["batch", "--base-url", "http://localhost:9/v1"]])
def test_ray_is_not_installed(source, capsys, command):
    assert main([*command, source, "out.jsonl", "--ray"]) == 2
    assert install_command("batch,ray") in capsys.readouterr().err


def test_settings_of_an_actor_are_those_of_this_process(tmp_path, monkeypatch):
    path = tmp_path / "promptools.toml"
    path.write_text('[providers.gpu]\nbase_url = ["http://a:1/v1", "http://b:1/v1"]\napi_key_env = "KEY_OF_GPU"\n')
    monkeypatch.setenv("KEY_OF_GPU", KEY)
    with OpenAI(config=load_config(path), provider="gpu", detect=False) as client:
        settings = ServerActorSettings.of_client(
            client, mode=None, model="m", default_model=None, timeout=60.0, patience=5.0, concurrency=8
        )
    assert KEY not in repr(settings)
    assert "http" not in repr(settings)
    monkeypatch.delenv("KEY_OF_GPU")
    path.unlink()
    arrived = pickle.loads(pickle.dumps(settings))
    there = arrived.make_client()
    assert (str(there.base_url), there.api_key, there.max_retries) == ("http://a:1/v1/", KEY, 0)
    assert there.promptools.provider == "gpu"
    assert there.promptools.config.providers["gpu"].replicas == ("http://b:1/v1",)


class Cluster:
    """A cluster as Ray describes it: a dead node, and live ones with these resources."""

    def __init__(self, *nodes):
        self._nodes = nodes

    def nodes(self):
        return [
            {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 8.0}},
            *({"Alive": True, "Resources": own} for own in self._nodes),
        ]

    def cluster_resources(self):
        return {"GPU": sum(own.get("GPU", 0) for own in self._nodes)}


GPUS = Cluster({"CPU": 8.0, "GPU": 4.0}, {"CPU": 8.0, "GPU": 3.0}, {"CPU": 4.0})
CPUS = Cluster({"CPU": 2.0}, {"CPU": 0.5}, {})


@pytest.mark.parametrize(
    ("cluster", "arguments", "actors", "resources"),
    [
        (GPUS, {}, 7, {"num_cpus": 1, "num_gpus": 1}),
        (GPUS, {"tensor_parallel_size": 2}, 3, {"num_cpus": 1, "num_gpus": 2}),
        (GPUS, {"tensor_parallel_size": 4, "pipeline_parallel_size": 2}, 1, {"num_cpus": 1, "num_gpus": 8}),
        (CPUS, {"tensor_parallel_size": 2}, 1, {"num_cpus": 1}),
    ],
)
def test_an_engine_has_its_gpus(cluster, arguments, actors, resources):
    settings = EngineActorSettings(EngineSettings("m", arguments), 5.0, None)
    assert (settings.default_actors(cluster), settings.resources(cluster)) == (actors, resources)


def test_what_an_actor_has_under_way(tmp_path):
    assert EngineActorSettings(EngineSettings("m"), 5.0, None).share(4) == 384
    assert EngineActorSettings(EngineSettings("m", {"max_num_seqs": 8}), 5.0, None).share(4) == 12
    doubled = EngineSettings("m", {"max_num_seqs": 8, "data_parallel_size": 2})
    assert EngineActorSettings(doubled, 5.0, None).share(4) == 24
    assert EngineActorSettings(EngineSettings("m"), 5.0, 100).share(4) == 25


@pytest.mark.parametrize("value", ["two", 0, 1.5, None])
def test_a_number_of_gpus_that_is_none(value):
    settings = EngineActorSettings(EngineSettings("m", {"tensor_parallel_size": value}), 5.0, None)
    with pytest.raises(UsageError, match="'tensor_parallel_size' must be a whole number from 1 up, got "):
        settings.default_actors(GPUS)


def test_all_chunks_of_an_actor_have_the_error_of_its_engine():
    """Here no vLLM is installed."""
    actor = AnsweringActor(EngineActorSettings(EngineSettings("m"), 5.0, None), 1)

    async def open_often():
        return await asyncio.gather(*(actor._open() for _ in range(3)), return_exceptions=True)

    first, *others = asyncio.run(open_often())
    assert isinstance(first, UsageError)
    assert "the engine needs vLLM" in str(first)
    assert others == [first, first]


@pytest.mark.parametrize("concurrency", [1, 2, 3, 8, 30, 64, 1000])
def test_chunks_leave_no_gap(concurrency):
    size, at_once = chunk_plan(concurrency)
    assert 1 <= size <= 32
    assert 3 * concurrency <= size * at_once < 3 * concurrency + size


def test_pending_requests(source):
    assert [request.line for request in PendingRequests(source, b"")] == [1, 2, 5]
    assert [request.line for request in PendingRequests(source, b"\0\1")] == [2, 5]
    assert [request.line for request in PendingRequests(source, b"\0\0\1\0\0\1\0")] == [1]


def job_of(source):
    return BatchJob(source, "out.jsonl", survey_input(source), model=None, log=None)


def test_results_that_come_twice_and_results_that_do_not_come(source, tmp_path):
    def drop_and_repeat(pending, record):
        for request in list(pending)[1:]:
            record(BatchAnswer(request.line, {"custom_id": request.custom_id, "try": 1}))
            record(BatchAnswer(request.line, {"custom_id": request.custom_id, "try": 2}))

    with pytest.raises(
        PromptoolsError, match="1 requests have no result; nothing is lost: run the same command to continue"
    ):
        job_of(source).run(drop_and_repeat, lambda totals: None)
    assert not (tmp_path / "out.jsonl").exists()
    missing = []

    def rest(pending, record):
        for request in pending:
            missing.append(request.line)
            record(BatchAnswer(request.line, {"custom_id": request.custom_id, "try": 3}))

    job_of(source).run(rest, lambda totals: None)
    assert missing == [1]
    rows = [json.loads(text) for text in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(row["custom_id"], row["try"]) for row in rows] == [("r2", 1), ("r5", 1), ("r1", 3)]
