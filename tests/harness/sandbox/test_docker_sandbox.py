"""Commands in containers: what `docker` is told, by a stand-in for it, and real ones where a daemon runs."""

import os
import shutil
import socket
import subprocess
import tarfile
from pathlib import Path

import pytest
from deep_folders import NAME, nested

from promptools.errors import UsageError
from promptools.harness.sandbox import CommandLimits, DockerSandbox, SandboxError
from promptools.harness.sandbox.docker import clear_special_bits
from promptools.harness.toolsets.in_distribution import PythonSession

MEGABYTE = 1 << 20


# -- what docker is told: a script that writes its arguments down, and runs nothing


@pytest.fixture
def told(tmp_path):
    folder = tmp_path / "stand-in"
    folder.mkdir()
    script = folder / "docker"
    script.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" END >> {folder}/told\n[ "$1" = run ] && echo the-container\n'
        '[ "$1 $2" = "exec -i" ] && echo 77\nexit 0\n'
    )
    script.chmod(0o755)

    def read():
        calls = (folder / "told").read_text().removesuffix("END\n").split("END\n")
        return [call.split("\n")[:-1] for call in calls]

    return str(script), read


def test_the_container_is_confined(told, tmp_path):
    docker, read = told
    (tmp_path / ".git").mkdir()
    limits = CommandLimits(memory=7, processes=8, file_size=9, open_files=10, temporary=11)
    DockerSandbox(
        "image:1", tmp_path, docker=docker, workspace="/testbed", limits=limits, cpus=4, options=["--label=x"]
    )
    run = read()[0]
    assert run[:3] == ["run", "-d", "--rm"]
    assert run[-5:-3] == ["--label=x", "image:1"]
    line = " ".join(run)
    for part in (
        "-w /testbed",
        f"--mount type=bind,source={tmp_path},target=/testbed --mount",
        f"--mount type=bind,source={tmp_path}/.git,target=/testbed/.git,readonly",
        f"--user {os.getuid()}:{os.getgid()}",
        "--cap-drop ALL --security-opt no-new-privileges",
        "--memory 7 --memory-swap 7",
        "--pids-limit 8",
        "--ulimit core=0:0 --ulimit fsize=9:9 --ulimit nofile=10:10",
        "--network none",
        "--read-only --tmpfs /tmp:rw,exec,nosuid,nodev,size=11",
        "--cpus 4",
        "target=/usr/local/bin/apply_patch,readonly --mount",
        "target=/opt/promptools/promptools,readonly",
    ):
        assert part in line


def test_apply_patch_says_that_an_image_has_no_python(told, tmp_path):
    docker, read = told
    sandbox = DockerSandbox("image", tmp_path, docker=docker)
    (mount,) = [part for part in read()[0] if part.endswith("target=/usr/local/bin/apply_patch,readonly")]
    program = mount.partition("source=")[2].partition(",")[0]
    assert shutil.which("sh")
    done = subprocess.run([program], env={"PATH": "/nowhere"}, capture_output=True, text=True, check=False)
    assert done.returncode == 127
    assert "needs Python 3.11 or later, and there is none here; call the tool repo_browser.apply_patch" in done.stderr
    sandbox.close()
    assert not Path(program).exists()


def test_bounds_are_lifted_if_that_is_wanted(told, tmp_path):
    docker, read = told
    (tmp_path / ".git").mkdir()
    options = {"network": True, "user": "0", "writable_git": True, "writable_system": True}
    DockerSandbox("image", tmp_path, docker=docker, **options)
    run = read()[0]
    assert not {"--network", "--read-only", "--tmpfs", "--cpus"} & set(run)
    assert run[run.index("--user") + 1] == "0"
    assert sum("readonly" not in part for part in run if part.startswith("type=bind")) == 1


def test_a_command_is_run_by_exec_with_a_time_out_inside(told, tmp_path):
    docker, read = told
    with DockerSandbox("image", tmp_path, docker=docker, limits=CommandLimits(timeout=30)) as sandbox:
        sandbox.run(["ls", "a b"], cwd="sub", env={"A": "1"}, timeout=7.5)
        sandbox.run("ls | wc", stdin="x", timeout=99)
        sandbox.start(["cat"]).kill()
    first, second, third, *_, last = read()[3:]
    assert first[:3] == ["exec", "-w", "/workspace/sub"]
    assert "A=1" in first
    assert first[-7:] == ["the-container", "timeout", "-k", "5", "7.5", "ls", "a b"]
    assert second[:4] == ["exec", "-i", "-w", "/workspace"]
    assert second[-8:] == ["the-container", "timeout", "-k", "5", "30", "bash", "-c", "ls | wc"]
    assert third[:2] == ["exec", "-i"]
    assert third[-1] == "cat"
    assert last == ["rm", "-f", "the-container"]


def test_no_setuid_or_setgid_bit_is_left_behind(told, tmp_path):
    docker, read = told
    inner = tmp_path / "work" / "a" / "b"
    inner.mkdir(parents=True)
    (tmp_path / "outside").touch()
    sandbox = DockerSandbox("image", tmp_path / "work", docker=docker)
    modes = {inner / "root": 0o6755, inner / "group": 0o2711, inner / "closed": 0o4111, inner.parent / "other": 0o644}
    for path, mode in (modes | {tmp_path / "outside": 0o4755}).items():
        path.touch()
        path.chmod(mode)
    (inner.parent / "link").symlink_to("../../outside")
    inner.chmod(0o2311)  # not to be listed, and new files in it belong to its group
    sandbox.close()
    assert read()[-1] == ["rm", "-f", "the-container"]
    inner.chmod(0o755)
    assert {path: path.stat().st_mode & 0o7777 for path in modes} == {
        path: mode & 0o777 for path, mode in modes.items()
    }
    assert (tmp_path / "outside").stat().st_mode & 0o7777 == 0o4755


def test_bits_are_cleared_below_many_folders(tmp_path):
    with nested(tmp_path, 3000) as deepest:
        os.close(os.open("shell", os.O_CREAT | os.O_WRONLY, dir_fd=deepest))
        os.chmod("shell", 0o4755, dir_fd=deepest)
        assert clear_special_bits(tmp_path) == [f"{NAME}/" * 3000 + "shell"]
        assert os.stat("shell", dir_fd=deepest).st_mode & 0o7777 == 0o755
        assert clear_special_bits(tmp_path) == []


def test_a_bit_that_cannot_be_cleared_is_an_error(monkeypatch, tmp_path):
    (tmp_path / "shell").touch()
    (tmp_path / "shell").chmod(0o4755)

    def refuse(*_, **__):
        raise PermissionError(1, "not the owner")

    monkeypatch.setattr(os, "chmod", refuse)
    with pytest.raises(SandboxError, match=r"cannot be cleared: remove, as the owner, 'shell'$"):
        clear_special_bits(tmp_path)


def test_what_cannot_be_started_is_told(told, tmp_path):
    docker, _ = told
    script = Path(docker)
    script.write_text(script.read_text().replace("echo 77", "echo the container is gone"))
    with DockerSandbox("image", tmp_path, docker=docker) as sandbox, pytest.raises(SandboxError, match="is gone"):
        sandbox.start(["cat"])


def test_mistakes_are_told_before_anything_runs(told, tmp_path):
    docker, _ = told
    for arguments, error in [
        ({"image": "--privileged"}, "is not a valid image name"),
        ({"image": "i", "workspace": "relative"}, "must be absolute"),
        ({"image": "i", "workspace": "/a,readonly"}, "with a comma"),
    ]:
        with pytest.raises(UsageError, match=error):
            DockerSandbox(root=tmp_path, docker=docker, **arguments)
    with pytest.raises(SandboxError, match="is not installed"):
        DockerSandbox("image", tmp_path, docker="no-such-docker")


# -- a real daemon

PROGRAMS = [
    "sh",
    "bash",
    "sleep",
    "timeout",
    "cat",
    "ls",
    "id",
    "rm",
    "cp",
    "chmod",
    "kill",
    "head",
    "yes",
    "ps",
    "touch",
    "env",
    "grep",
    "ln",
    "python3",
]


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    """An image of this machine's own programs, so that none has to be fetched."""
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "info"], check=False, capture_output=True).returncode:
        pytest.skip("no Docker daemon runs here")
    archive = tmp_path_factory.mktemp("image") / "image.tar"
    with tarfile.open(archive, "w") as tar:
        paths = sorted(files_of_image())
        for folder in sorted({parent for path in paths for parent in path.parents} | {Path("/tmp")}):
            entry = tarfile.TarInfo(str(folder))
            entry.type, entry.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(entry)
        for path in paths:
            tar.add(path.resolve(), arcname=str(path), filter=without_tests)
    name = "promptools-tests:1"
    subprocess.run([docker, "import", str(archive), name], check=True, capture_output=True)
    yield name
    subprocess.run([docker, "rmi", "-f", name], check=True, capture_output=True)


def without_tests(entry):
    return None if entry.name.endswith(("/test", "/idlelib", "/ensurepip", "/__pycache__")) else entry


def files_of_image():
    """The programs, the libraries that they load, and Python's own modules."""
    system = {**os.environ, "PATH": "/usr/bin:/bin"}
    programs = [Path(shutil.which(name, path=system["PATH"]) or pytest.skip(f"no {name} here")) for name in PROGRAMS]
    where = "import sysconfig; print(sysconfig.get_path('stdlib'))"
    python = subprocess.run([programs[-1], "-c", where], check=True, capture_output=True, text=True).stdout.strip()
    modules = [*programs, *Path(python, "lib-dynload").glob("*.so")]
    loaded = subprocess.run(["ldd", *modules], check=False, capture_output=True, text=True).stdout.split()
    return {
        *programs,
        Path(python),
        *(Path(word) for word in loaded if word.startswith("/") and not word.endswith(":")),
    }


@pytest.fixture(scope="module")
def sandbox(image, tmp_path_factory):
    limits = CommandLimits(timeout=20, processes=50, memory=200 * MEGABYTE, file_size=MEGABYTE, temporary=MEGABYTE // 2)
    root = tmp_path_factory.mktemp("workspace")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("[core]\n")
    with DockerSandbox(image, root, limits=limits) as made:
        yield made


def test_commands_in_a_real_container(sandbox):
    assert sandbox.run("echo hi > file; cat file; pwd").output == "hi\n/workspace\n"
    assert (sandbox.root / "file").stat().st_uid == os.getuid()
    assert sandbox.run(["printf", "%s|", "a b", "$HOME"], cwd="/").exit_code in {0, 127}
    assert sandbox.run("cat", stdin="given").output == "given"
    assert sandbox.run("cat").output == ""
    assert [sandbox.run(line).exit_code for line in ("exit 3", "no-such-program", "kill -9 $$")] == [3, 127, 137]
    assert sandbox.run("touch /new /usr/new").exit_code != 0
    assert "eth" not in sandbox.run("cat /proc/net/dev").output
    assert sandbox.run("yes", timeout=0.5).truncated


def test_a_real_container_confines(sandbox, monkeypatch, tmp_path):
    (tmp_path / "secret").write_text("the secret")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    with socket.create_server(("127.0.0.1", 0)) as server:
        connect = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 2)"
        assert "refused" in sandbox.run(["python3", "-c", connect]).output
    for line in (
        "echo x >> .git/config",
        "touch .git/hooks",
        f"cat {tmp_path}/secret",
        f"ln -s {tmp_path}/secret link && cat link",
        f"cat ../../..{tmp_path}/secret",
        "exec 3>/proc/sys/kernel/core_pattern",
        f"kill -9 {os.getpid()}",
    ):
        assert sandbox.run(line).exit_code != 0, line
    assert (sandbox.root / ".git" / "config").read_text() == "[core]\n"
    assert "sk-of-the-user" not in sandbox.run("env; cat /proc/*/environ").output
    assert len(sandbox.run("ps -e").output.splitlines()) < 10
    assert "No space left" in sandbox.run("head -c 4M /dev/zero > /tmp/a").output
    assert sandbox.run("grep -c '^Cap.*0000000000000000$' /proc/self/status").output in {"4\n", "5\n"}


def test_a_real_container_leaves_no_setuid_bit(image, tmp_path):
    with DockerSandbox(image, tmp_path) as sandbox:
        assert sandbox.run("cp /bin/sh shell; chmod 4755 shell").exit_code == 0
    assert (tmp_path / "shell").stat().st_mode & 0o7777 == 0o755


def test_a_time_out_in_a_real_container(sandbox):
    assert sandbox.run("sleep 5000 & sleep 5000", timeout=0.5).timed_out
    assert "sleep 5000" not in sandbox.run("ps -ef").output


def test_limits_of_a_real_container(sandbox):
    assert sandbox.run(["python3", "-c", "b = bytearray(b'x') * (300 * 2**20)"]).exit_code == 137
    fork = "import os, time\nfor _ in range(100):\n    if os.fork() == 0: time.sleep(2); os._exit(0)"
    assert "Resource temporarily unavailable" in sandbox.run(["python3", "-c", fork]).output
    sandbox.run("head -c 8M /dev/zero > big")
    assert (sandbox.root / "big").stat().st_size == MEGABYTE


def test_an_interpreter_in_a_real_container(sandbox):
    session = PythonSession(sandbox, stateful=True, timeout=3)
    session.run("x = 41")
    assert session.run("x + 1") == "42\n"
    assert "gets a new one" in session.run("while True: pass")
    assert "python3" not in sandbox.run("ps -e").output
    assert "NameError" in session.run("x")
    session.close()


def test_an_image_that_is_not_there(image, tmp_path):
    with pytest.raises(SandboxError, match="`docker run` failed"):
        DockerSandbox("localhost:1/nothing", tmp_path)
