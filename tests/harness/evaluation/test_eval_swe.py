"""`promptools eval swe` on a real llama.cpp, whose model has learned to resolve the issues of a small project."""

import argparse
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import environments
import openai
import pytest
from bubblewrapped import program
from recipes.recipe import CannotMakeError
from swe_project import git, instances, make_clone
from upstream import running

from promptools.cli import main
from promptools.cli.benchmark_run import make_agent
from promptools.errors import UsageError, install_command
from promptools.harness.agent import Agent, RunLimits
from promptools.harness.evaluation.swe import (
    PREDICTIONS,
    RUN_ID,
    GradingError,
    SweSolver,
    grade,
    read_instances,
    read_report,
    report_name,
    require_swebench,
    summarize_swe,
    write_predictions,
)
from promptools.harness.evaluation.swe_workspaces import check_out, docker_problem, find_clone, open_image
from promptools.harness.evaluation.tasks import TaskAttempt, Unanswered
from promptools.harness.sandbox import LocalSandbox, SandboxError
from promptools.harness.toolsets.in_distribution import gpt_oss_tools
from promptools.lab.llamacpp_server import can_serve, serve
from promptools.lab.script import ScriptedReply
from promptools.testing import HttpAnswer, ModelReply

real = pytest.mark.skipif(not can_serve(), reason="xllamacpp or gguf is not installed here")
PATCH = """\
*** Begin Patch
*** Update File: sums.py
@@
-    return a - b
+    return a + b
*** End Patch"""
CHECK = "from sums import add; print('The sum', 'is', add(1, 2))"
MAKE = """\
printf 'def double(a):\\n    return 2 * a\\n' > doubling.py
mkdir -p build && touch build/out
git add -A && git commit -qm wip && echo made it"""


def called(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


@pytest.fixture(scope="module")
def gate(tmp_path_factory):
    """A file without which the model's command for the third issue never ends; it writes down its process."""
    return tmp_path_factory.mktemp("gate") / "open"


@pytest.fixture(scope="module")
def server(tmp_path_factory, gate):
    wait = f"test -e {gate} || {{ echo $$ > {gate}.waits; exec sleep 600; }}; echo it is open"
    script = [
        ScriptedReply("The function add returns", called("repo_browser.open_file", path="sums.py")),
        ScriptedReply("def negate(a)", called("repo_browser.apply_patch", patch=PATCH)),
        ScriptedReply("Done.", called("container.exec", command=["python3", "-c", CHECK])),
        ScriptedReply("The sum is 3", "add adds now."),
        ScriptedReply("no function double", called("container.exec", command=["sh", "-c", MAKE])),
        ScriptedReply("made it", "double is in doubling.py."),
        ScriptedReply("nothing has to be changed", "That is right."),
        ScriptedReply("It waits", called("container.exec", command=["sh", "-c", wait])),
        ScriptedReply("it is open", "It went on."),
    ]
    with serve(script, template="hermes", name="sums", folder=tmp_path_factory.mktemp("swe")) as running:
        yield running


@pytest.fixture(scope="module")
def server_of_gpt_oss(tmp_path_factory):
    call = json.dumps({"command": ["sh", "-c", MAKE]})
    script = [
        ScriptedReply("no function double", f"<|channel|>analysis to=container.exec code<|message|>{call}<|call|>"),
        ScriptedReply("made it", "<|channel|>final<|message|>double is in doubling.py.<|return|>"),
    ]
    folder = tmp_path_factory.mktemp("gpt-oss")
    with serve(script, template="harmony", name="gpt-oss-20b", folder=folder) as running:
        yield running


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clones")
    return folder, make_clone(folder / "own" / "sums")


@pytest.fixture
def given(project, tmp_path):
    """Write instances into a file; the first two are the issues."""

    def write(*more, **changed):
        made = [{**entry, **changed} for entry in instances(project[1])]
        made += [{**made[0], "instance_id": f"own__sums-{n}", "problem_statement": p} for n, p in enumerate(more, 3)]
        (tmp_path / "given.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in made))
        return made

    return write


@pytest.fixture
def command(server, project, tmp_path):
    run = ["eval", "swe", str(tmp_path / "given.jsonl"), "--base-url", server.base_url, "--model", "own/sums"]
    return [
        *run,
        "--output",
        str(tmp_path / "out"),
        "--repos",
        str(project[0]),
        "--sandbox",
        "local",
        "--workers",
        "2",
        "--json",
    ]


def lines_of(path):
    return list(map(json.loads, path.read_text(encoding="utf-8").splitlines()))


@pytest.mark.e2e
@real
class TestRun:
    def test_patches_and_trajectories_are_written_and_a_run_continues(self, command, given, capsys, tmp_path, project):
        given("This is an issue in which nothing has to be changed.")
        report = tmp_path / "report.md"
        assert main([*command, "--report", str(report)]) == 0
        first = capsys.readouterr()
        figures = json.loads(first.out)
        assert {name: figures[name] for name in ("resolved", "instances", "patches", "no_change", "failed")} == {
            "resolved": None,
            "instances": 3,
            "patches": 2,
            "no_change": 1,
            "failed": 0,
        }
        assert "own__sums-3: no change" in first.err
        out = tmp_path / "out"
        predicted = {line["instance_id"]: line for line in lines_of(out / PREDICTIONS)}
        assert {line["model_name_or_path"] for line in predicted.values()} == {"own/sums"}
        patches = [predicted[f"own__sums-{n}"]["model_patch"] for n in (1, 2, 3)]
        assert "-    return a - b\n+    return a + b\n" in patches[0]
        assert [line for line in patches[1].splitlines() if line.startswith("+++")] == ["+++ b/doubling.py"]
        assert patches[2] == ""
        trajectory = json.loads((out / "trajs" / "own__sums-1" / "own__sums-1.traj.json").read_text())
        assert trajectory["trajectory_format"] == "mini-swe-agent-1"
        assert trajectory["instance_id"] == "own__sums-1"
        assert trajectory["info"]["exit_status"] == "Submitted"
        assert trajectory["info"]["submission"] == patches[0]
        assert trajectory["info"]["model_stats"]["steps"] == 4
        page = report.read_text()
        assert "| resolved, of all instances, with its 95 % interval | not graded |" in page
        assert f"`cd {out} && python -m swebench.harness.run_evaluation" in page
        assert "| own__sums-3 | no change |  |" in page
        assert main(command) == 0  # all of it is in the log
        assert capsys.readouterr().out == first.out
        assert git("status", "--porcelain", cwd=project[0] / "own" / "sums") == ""

    def test_a_run_that_was_killed_continues(self, command, given, tmp_path, gate, capsys):
        given("It waits for nothing.")
        waits = gate.with_suffix(".waits")
        program = [sys.executable, "-m", "promptools", *command, "--workers", "3"]
        with subprocess.Popen(program, env={**os.environ, "TMPDIR": str(tmp_path)}) as process:
            log = tmp_path / "out" / "run.jsonl"
            deadline = time.monotonic() + 300
            while not (waits.exists() and waits.read_text() and log.exists() and log.read_text().count("\n") == 3):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            process.kill()
        os.kill(int(waits.read_text()), signal.SIGKILL)
        before = lines_of(log)
        gate.touch()
        assert main(command) == 0
        after = lines_of(log)
        assert after[:3] == before
        assert [(line["task"], line["error"]) for line in after[3:]] == [("own__sums-3", "")]
        assert len(lines_of(tmp_path / "out" / PREDICTIONS)) == 3
        assert "3/3 own__sums-3" in capsys.readouterr().err

    def test_a_limit_is_a_result_and_its_patch_is_kept(self, command, given, tmp_path, capsys):
        given()
        assert main([*command, "--steps", "3"]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert (figures["unanswered"], figures["patches"]) == (1, 1)
        predicted = {line["instance_id"]: line["model_patch"] for line in lines_of(tmp_path / "out" / PREDICTIONS)}
        assert predicted["own__sums-1"] == ""
        written = json.loads((tmp_path / "out" / "trajs" / "own__sums-1" / "own__sums-1.traj.json").read_text())
        assert written["info"]["exit_status"] == "steps"
        assert "+    return a + b" in written["info"]["submission"]

    def test_the_papers_way(self, command, given, tmp_path, capsys, server_of_gpt_oss):
        """Harmony, the tools in the system message, the paper's checks and its form of results."""
        given()
        lines = (tmp_path / "given.jsonl").read_text().splitlines()
        (tmp_path / "given.jsonl").write_text(lines[1])
        at = command.index("--base-url")
        changed = [*command[:at], "--base-url", server_of_gpt_oss.base_url, *command[at + 2 :]]
        changed[changed.index("--model") + 1] = "gpt-oss-20b"
        request = '{"temperature": 1, "top_p": 1, "max_tokens": 4096, "reasoning_effort": "medium"}'
        assert main([*changed, "--policy", "paper", "--steps", "1000", "--request", request]) == 0
        assert json.loads(capsys.readouterr().out)["patches"] == 1
        (predicted,) = lines_of(tmp_path / "out" / PREDICTIONS)
        assert "+++ b/doubling.py" in predicted["model_patch"]
        written = json.loads((tmp_path / "out" / "trajs" / "own__sums-2" / "own__sums-2.traj.json").read_text())
        assert [message["role"] for message in written["messages"]] == ["user", "assistant", "user", "assistant"]
        assert written["messages"][2]["content"] == "<returncode>0</returncode>\n<output>\nmade it\n</output>"
        assert written["messages"][3]["content"] == "double is in doubling.py."

    @pytest.mark.bubblewrap
    def test_commands_run_in_a_sandbox(self, command, given, capsys, monkeypatch):
        bwrap = program()
        if isinstance(bwrap, CannotMakeError):
            pytest.skip(str(bwrap))
        monkeypatch.setenv("PATH", f"{Path(bwrap).parent}{os.pathsep}{os.environ['PATH']}")
        given()
        assert main([*command, "--sandbox", "bubblewrap"]) == 0
        assert json.loads(capsys.readouterr().out)["patches"] == 2

    def test_what_is_wrong_with_the_instances_is_told_before_the_run(self, command, given, tmp_path, capsys):
        for changed, problem in (
            ({"base_commit": "0" * 40}, f"has no commit {'0' * 40}; git fetch it there"),
            ({"repo": "own/other"}, "there is no clone of 'own/other'"),
        ):
            given(**changed)
            assert main(command) == 2
            assert problem in capsys.readouterr().err
        assert not (tmp_path / "out").exists()

    @pytest.mark.skipif(not docker_problem(), reason="a Docker daemon runs here")
    def test_without_docker(self, command, given, tmp_path, capsys):
        given()
        assert main([*command, "--grade"]) == 2
        message = capsys.readouterr().err
        assert "--grade needs Docker, which cannot be used here: " in message
        assert f"cd {tmp_path / 'out'} && python -m swebench.harness.run_evaluation --dataset_name=" in message
        assert f"--graded {tmp_path / 'out' / 'own__sums.promptools.json'}" in message
        at = command.index("--repos")
        assert main([*command[:at], "--json"]) == 2
        assert "or work in local clones with --repos DIR" in capsys.readouterr().err


# --- swebench itself -------------------------------------------------------------------------------------------------

GRADE = """
import json, sys
from pathlib import Path
from swebench.harness.grading import get_eval_report
from swebench.harness.reporting import make_run_report
from swebench.harness.utils import get_predictions_from_file, load_swebench_dataset, make_test_spec

given, run_id, trees = sys.argv[1:]
dataset = load_swebench_dataset(given)
predictions = {p["instance_id"]: p for p in get_predictions_from_file("predictions.jsonl", given, "test")}
for instance in dataset:
    name, prediction = instance["instance_id"], predictions[instance["instance_id"]]
    if not prediction["model_patch"]:
        continue
    logs = Path("logs/run_evaluation", run_id, prediction["model_name_or_path"].replace("/", "__"), name)
    spec = make_test_spec(instance)
    report = get_eval_report(spec, prediction, Path(trees, name, "test_output.txt"), include_tests_status=True)
    logs.mkdir(parents=True)
    (logs / "patch.diff").write_text(prediction["model_patch"])
    (logs / "report.json").write_text(json.dumps(report))
make_run_report(predictions, dataset, run_id)
"""


@pytest.fixture(scope="module")
def swebench():
    """The Python of an environment with swebench."""
    try:
        return environments.path_of("swebench")
    except CannotMakeError as error:
        pytest.skip(f"swebench cannot be installed: {error}")


@pytest.mark.swebench
class TestGrading:
    @pytest.mark.e2e
    @real
    def test_swebench_loads_the_predictions_and_its_report_is_read(
        self, command, given, tmp_path, capsys, project, swebench
    ):
        """All is swebench's own but the container: its evaluation script runs in a work tree with the patch."""
        made = given("This is an issue in which nothing has to be changed.")
        assert main(command) == 0
        capsys.readouterr()
        out = tmp_path / "out"
        for entry, line in zip(made, sorted(lines_of(out / PREDICTIONS), key=lambda p: p["instance_id"]), strict=True):
            tree = tmp_path / "trees" / entry["instance_id"]
            tree.mkdir(parents=True)
            check_out(find_clone(project[0], entry["repo"]), entry["base_commit"], tree)
            if line["model_patch"]:
                git("apply", "--verbose", "-", cwd=tree, stdin=line["model_patch"].encode())
            done = subprocess.run(
                ["bash", "-c", entry["eval_script"]], cwd=tree, check=False, text=True, capture_output=True
            )
            (tree / "test_output.txt").write_text(done.stdout + done.stderr)
        arguments = [tmp_path / "given.jsonl", RUN_ID, tmp_path / "trees"]
        done = subprocess.run([swebench, "-c", GRADE, *arguments], cwd=out, check=False, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        report = out / report_name("own/sums")
        capsys.readouterr()
        assert main([*command, "--graded", str(report), "--report", str(tmp_path / "report.md")]) == 0
        figures = json.loads(capsys.readouterr().out)
        assert figures["resolved_ids"] == ["own__sums-1", "own__sums-2"]
        assert figures["resolved"]["estimate"] == pytest.approx(2 / 3)
        assert figures["resolved"]["low"] < 2 / 3 < figures["resolved"]["high"]
        page = (tmp_path / "report.md").read_text()
        assert "| own__sums-1 | resolved |" in page
        assert "not graded" not in page

    @pytest.mark.skipif(not docker_problem(), reason="a Docker daemon runs here")
    def test_the_harness_takes_our_command(self, given, tmp_path, monkeypatch, swebench, capfd):
        """It reads the arguments, the predictions and the data set, and then needs Docker."""
        given()
        monkeypatch.setattr(sys, "executable", str(swebench))
        predicted = {"own__sums-1": prediction("own__sums-1")}
        write_predictions(tmp_path, predicted)
        with pytest.raises(GradingError, match="swebench wrote no report and ended with 1"):
            grade(tmp_path, tmp_path / "given.jsonl", predicted, "own/sums", 1)
        shown = capfd.readouterr().err
        assert "docker.errors.DockerException" in shown
        metadata = json.loads((tmp_path / "logs" / "run_evaluation" / RUN_ID / "run.json").read_text())
        assert metadata["dataset"] == str(tmp_path / "given.jsonl")


def prediction(name, patch="diff --git a/x b/x\n"):
    return {"instance_id": name, "model_name_or_path": "own/sums", "model_patch": patch}


PREDICTED = {name: prediction(name, patch) for name, patch in (("a", "x\n"), ("b", "y\n"), ("c", ""))}
REPORT = {"submitted_ids": ["a", "b", "c"], "resolved_ids": ["a"], "error_ids": ["b"], "schema_version": 2}


def test_a_report(tmp_path):
    (tmp_path / "report").write_text(json.dumps(REPORT))
    graded = read_report(tmp_path / "report", PREDICTED)
    assert (graded.resolved, graded.errors) == ({"a"}, {"b"})
    attempts = [TaskAttempt(name, 0, made["model_patch"]) for name, made in PREDICTED.items()]
    summary = summarize_swe([*attempts, TaskAttempt("d", 0, ended="steps"), TaskAttempt("e", 0, error="E")], graded)
    results = [summary.result(attempt) for attempt in summary.attempts]
    assert results == ["resolved", "error", "no change", "no answer", "failed"]
    assert summary.resolved is not None
    assert summary.resolved.estimate == 0.2


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "cannot read the report"),
        ("[]", "is not a report of swebench: it has no list 'submitted_ids'"),
        (json.dumps({**REPORT, "resolved_ids": [1]}), "it has no list 'resolved_ids'"),
        (json.dumps({**REPORT, "submitted_ids": ["a"]}), "lacks 2 of 3 predictions, b, c; grade predictions.jsonl"),
        (json.dumps({**REPORT, "resolved_ids": ["a", "c"]}), "is on other predictions: it has c as resolved"),
    ],
)
def test_reports_that_are_none(tmp_path, text, problem):
    (tmp_path / "report").write_text(text)
    with pytest.raises(UsageError, match=problem):
        read_report(tmp_path / "report", PREDICTED)


def test_logs_of_other_patches_are_not_taken(tmp_path):
    folder = tmp_path / "logs" / "run_evaluation" / RUN_ID / "own__sums" / "a"
    folder.mkdir(parents=True)
    (folder / "patch.diff").write_text("z\n")
    with pytest.raises(UsageError, match="is another patch than the prediction; remove"):
        grade(tmp_path, tmp_path / "given.jsonl", PREDICTED, "own/sums", 1)
    with pytest.raises(UsageError, match="there is no patch to grade"):
        grade(tmp_path, tmp_path / "given.jsonl", {"c": PREDICTED["c"]}, "own/sums", 1)


def test_the_papers_harness_has_one_limit():
    given = argparse.Namespace(policy="paper", steps=7, system="", request={})
    assert make_agent(given, None, "m", []).limits == RunLimits(steps=7, failures=None, repeats=None, nudges=0)
    given.policy = "default"
    assert make_agent(given, None, "m", []).limits == RunLimits(steps=7)


@pytest.mark.skipif(importlib.util.find_spec("swebench") is not None, reason="swebench is installed here")
def test_without_swebench():
    with pytest.raises(UsageError, match=re.escape(install_command("swe"))):
        require_swebench()


# --- runs whose context overflows ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def replies():
    with running() as upstream:
        yield upstream


TOO_LONG = {"message": "request (9000 tokens) exceeds the available context size (8000 tokens)", "code": 400}
OVERFLOW = HttpAnswer(400, (json.dumps({"error": {"type": "exceed_context_size_error", **TOO_LONG}}).encode(),))
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


def writing(name):
    return ModelReply(None, calls=[("container.exec", {"command": ["touch", name]})], usage=USAGE)


@pytest.fixture
def solver(replies, project, tmp_path):
    def make(*script, **options):
        replies.play(*script)
        client = openai.OpenAI(base_url=replies.url, api_key="k", max_retries=0)

        def make_agent(sandbox):
            return Agent(client, [gpt_oss_tools(sandbox.root, sandbox)], model="m", compaction=False)

        def open_clone(instance, root):
            check_out(find_clone(project[0], instance.repo), instance.base_commit, root)
            return LocalSandbox(root, allow_unsandboxed=True)

        return SweSolver(make_agent, open_clone, tmp_path / "trajs", **options)

    return make


def test_a_run_that_overflows_is_begun_again_with_the_repository_as_it_was(solver, given, tmp_path):
    given()
    script = [writing("first"), OVERFLOW, writing("second"), OVERFLOW, writing("third"), "I have made it."]
    instance = read_instances(tmp_path / "given.jsonl")[0]
    solution = solver(*script, overflow_retries=2)(instance, 0)
    assert [line for line in solution.text.splitlines() if line.startswith("diff")] == ["diff --git a/third b/third"]
    assert solution.usage["completion_tokens"] >= 15
    written = json.loads((tmp_path / "trajs" / instance.id / f"{instance.id}.traj.json").read_text())
    assert written["info"]["config"]["overflow_retries"] == 2
    with pytest.raises(Unanswered, match=r"^MaxContextWindowOverflow: ") as raised:
        solver(writing("first"), OVERFLOW, writing("second"), OVERFLOW, overflow_retries=1)(instance, 0)
    assert raised.value.usage["completion_tokens"] == 10


def test_the_task_as_it_is_asked(solver, given, tmp_path, replies):
    given()
    instance = read_instances(tmp_path / "given.jsonl")[0]
    assert solver("Nothing.", prompt="At {workspace}: {problem_statement}")(instance, 0).text == ""
    asked = replies.requests[-1].json["messages"][-1]["content"]
    assert asked.startswith("At /")
    assert asked.endswith("/testbed: The function add returns wrong sums.")
    with pytest.raises(UsageError, match=r"has no \{problem_statement\}"):
        solver(prompt="Do it.")


# --- files of instances ----------------------------------------------------------------------------------------------


def test_jsonl_and_json(given, tmp_path):
    made = given()
    del made[1]["image"]
    (tmp_path / "given.json").write_text(json.dumps(made, indent=1))
    (first, second), lines = read_instances(tmp_path / "given.json"), read_instances(tmp_path / "given.jsonl")
    assert first == lines[0]
    assert first.image == "swebench/own_1776_sums-1:latest"
    assert second.image == "swebench/sweb.eval.x86_64.own_1776_sums-2:latest"


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"instance_id": "../x"}, "'instance_id' is '../x'; it has to be a name of letters"),
        ({"repo": "sums"}, "'repo' is 'sums'; it has to be 'owner/name'"),
        ({"base_commit": "--upload-pack=x"}, "'base_commit' is '--upload-pack=x'; it has to be the hash"),
        ({"problem_statement": " \n"}, "'problem_statement' is"),
        ({"image": "--privileged"}, "'image' is '--privileged'; it must be the name of a Docker image"),
    ],
)
def test_instances_that_are_none(given, tmp_path, changed, problem):
    given(**changed)
    with pytest.raises(UsageError, match=f"line 1: {re.escape(problem)}"):
        read_instances(tmp_path / "given.jsonl")


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.jsonl", '{"instance_id": "a"', "line 1: not valid JSON"),
        ("x.jsonl", '{"instance_id": "a__b-1"}', "line 1: 'repo' is missing"),
        ("x.jsonl", "3", "line 1: not an object"),
        ("x.json", "[{]", "not a JSON array"),
        ("x.json", "[3]", "entry 1: not an object"),
        ("x.txt", "", "must be called .jsonl or .json"),
        ("x.jsonl", "", "there are no tasks"),
    ],
)
def test_files_that_are_none(tmp_path, capsys, name, text, problem):
    (tmp_path / name).write_text(text)
    assert main(["eval", "swe", str(tmp_path / name), "--output", str(tmp_path / "out")]) == 2
    assert problem in capsys.readouterr().err


def test_two_instances_of_one_name(given, tmp_path):
    given(instance_id="own__sums-1")
    with pytest.raises(UsageError, match="line 2: there is another task 'own__sums-1'"):
        read_instances(tmp_path / "given.jsonl")


# --- images: what docker is told, by a stand-in for it ---------------------------------------------------------------


@pytest.fixture
def stand_in(project, tmp_path):
    """A script that writes its arguments down; it copies a clone, and runs nothing."""
    script = tmp_path / "docker"
    script.write_text(
        f"""#!/bin/sh
printf '%s\\n' "$*" >> {tmp_path}/told
case "$1" in
create) [ "$2" = none ] && {{ echo 'no such image' >&2; exit 1; }}; echo made-container;;
cp) git clone -q {project[0] / "own" / "sums"} "$3/../copy" && cp -a "$3/../copy/." "$3";;
image) echo '["LANG=C","PATH=/opt/x:/bin"]';;
run) echo run-container;;
esac
"""
    )
    script.chmod(0o755)
    return str(script), lambda: (tmp_path / "told").read_text().splitlines()


def test_a_container_with_the_repository_of_its_image(stand_in, tmp_path):
    docker, told = stand_in
    root = tmp_path / "work" / "testbed"
    root.mkdir(parents=True)
    with open_image("swebench/x:1", root, docker=docker) as sandbox:
        assert sandbox.workspace == "/testbed"
        assert (root / "sums.py").exists()
    calls = told()
    assert calls[:3] == ["create swebench/x:1 true", f"cp made-container:/testbed/. {root}", "rm -f made-container"]
    (started,) = [call for call in calls if call.startswith("run ")]
    assert f"--mount type=bind,source={root},target=/testbed --mount" in started
    assert "target=/testbed/.git" not in started  # it may be changed
    assert "--network none" in started
    assert "--env PATH=/opt/miniconda3/envs/testbed/bin:/opt/x:/bin swebench/x:1 sh -c" in started
    assert calls[-1] == "rm -f run-container"


def test_an_image_that_cannot_be_had(stand_in, tmp_path):
    with pytest.raises(SandboxError, match="`docker create` failed: no such image"):
        open_image("none", tmp_path, docker=stand_in[0])
    with pytest.raises(SandboxError, match="'/no/docker' is not installed"):
        open_image("swebench/x:1", tmp_path, docker="/no/docker")
    assert docker_problem("/no/docker") == "'/no/docker' is not installed, or not on PATH"


@pytest.mark.parametrize("more", [["--sandbox", "local"], ["--image", "x"]])
def test_sandboxes_are_for_clones(given, tmp_path, capsys, more):
    given()
    command = ["eval", "swe", str(tmp_path / "given.jsonl"), "--output", str(tmp_path / "out")]
    assert main([*command, *more]) == 2
    assert "name their folder with --repos DIR" in capsys.readouterr().err
