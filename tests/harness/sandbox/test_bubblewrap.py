"""Attempts to get out of real sandboxes: each is made by a command inside, and its success would be seen outside."""

import json
import os
import platform
import shutil
import socket
import sys
import tarfile
import threading
import time
from pathlib import Path

import pytest
from bubblewrapped import sandboxed
from patching import check_apply_patch
from waiting import LIMITS

from promptools.errors import UsageError
from promptools.harness.sandbox import BubblewrapSandbox, CommandLimits, SandboxError

pytestmark = pytest.mark.bubblewrap
MEGABYTE = 1 << 20


@pytest.fixture
def outside(tmp_path):
    """A folder of this machine beside the workspace, with a secret."""
    folder = tmp_path / "outside"
    folder.mkdir()
    (folder / "secret").write_text("the secret")
    return folder


@pytest.fixture
def root(tmp_path):
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def sandbox(root):
    made = sandboxed(root, limits=CommandLimits(timeout=300))
    yield made
    made.close()


def python(sandbox, code, **options):
    return sandbox.run(["/usr/bin/env", "python3", "-c", code], **options)


# -- it works


def test_apply_patch_is_on_the_path(sandbox, root):
    check_apply_patch(sandbox, root)


def test_a_command_works_in_the_workspace(sandbox, root):
    result = sandbox.run("echo hi > file; cat file; pwd; id -u")
    assert result.output.split() == ["hi", str(root), str(os.getuid() or 1000)]
    assert (root / "file").read_text() == "hi\n"


def test_a_list_is_a_program_and_a_missing_one_a_result(sandbox):
    assert sandbox.run(["printf", "%s|", "a b", "$HOME"]).output == "a b|$HOME|"
    assert sandbox.run(["no-such-program"]).exit_code == 127


def test_other_folders_can_be_shown(root, outside):
    shown = sandboxed(root, read_only=[outside])
    assert shown.run(f"cat {outside}/secret; echo x > {outside}/new").output.startswith("the secret")
    assert not (outside / "new").exists()
    sandboxed(root, writable=[outside]).run(f"echo x > {outside}/new")
    assert (outside / "new").exists()


def test_a_workspace_that_holds_the_system_is_refused(tmp_path):
    for folder in ("/", "/usr", "/tmp"):
        with pytest.raises(UsageError, match="choose another"):
            BubblewrapSandbox(folder)
    with pytest.raises(SandboxError, match="is not installed"):
        BubblewrapSandbox(tmp_path, bwrap="no-such-bwrap")


# -- files


@pytest.mark.parametrize(
    "line",
    [
        "cat {secret}",
        "cat ../outside/secret",
        "ln -s {secret} link; cat link",
        "ln -s {outside} link; cat link/secret",
        "cat /proc/1/root{secret}",
        "cat /proc/self/root{secret}",
        "cat /proc/1/cwd/../outside/secret",
        "cat /etc/shadow",
        "ls /root /home/* /var/lib",
        "cat /sys/kernel/mm/transparent_hugepage/enabled",
        "head -c 1 /proc/kcore",
        "unshare -Urm cat {secret}",
        "mount --bind / /tmp && cat /tmp{secret}",
        "chroot / cat {secret}",
    ],
)
def test_no_file_outside_is_read(sandbox, outside, line):
    result = sandbox.run(line.format(outside=outside, secret=outside / "secret"))
    assert result.exit_code != 0
    assert "the secret" not in result.output


@pytest.mark.parametrize(
    "line",
    [
        "echo x > {outside}/new",
        "ln -s {outside} link; echo x > link/new",
        "ln {outside}/secret hard",
        "mv file {outside}/new",
        "rm -r {outside}",
        "mkdir -p /usr/new",
        "touch /etc/new /new /dev/new /var/new",
        "mknod block b 259 0",
        "mount -o remount,rw /",
        "mount -t tmpfs none /usr",
    ],
)
def test_nothing_outside_is_written(sandbox, root, outside, line):
    (root / "file").write_text("x")
    assert sandbox.run(line.format(outside=outside)).exit_code != 0
    assert [path.name for path in outside.iterdir()] == ["secret"]


def test_settings_of_the_kernel_cannot_be_opened_for_writing(sandbox):
    """Where promptools is root, the user inside owns them."""
    code = """
import os
opened = []
for folder, _, names in os.walk("/proc/sys"):
    for name in names:
        try:
            os.close(os.open(os.path.join(folder, name), os.O_WRONLY))
            opened.append(name)
        except OSError:
            pass
print(len(opened), opened[:5])
"""
    assert python(sandbox, code).output == "0 []\n"
    assert sandbox.run("echo 1000 > /proc/1/oom_score_adj").exit_code != 0


def test_the_settings_and_hooks_of_git_cannot_be_changed(sandbox, root):
    """What they name is run by the user's own git, outside."""
    (root / ".git" / "hooks").mkdir(parents=True)
    (root / ".git" / "config").write_text("[core]\n")
    for line in (
        "echo x >> .git/config",
        "touch .git/hooks/pre-commit",
        "touch .git/commondir",
        "mv .git old",
        "rm -rf .git",
    ):
        assert sandbox.run(line).exit_code != 0, line
    assert (root / ".git" / "config").read_text() == "[core]\n"
    assert not list((root / ".git" / "hooks").iterdir())
    sandboxed(root, writable_git=True).run("echo x >> .git/config")
    assert (root / ".git" / "config").read_text() == "[core]\nx\n"


def test_temporary_files_are_private_and_gone(sandbox):
    assert sandbox.run("echo x > /tmp/file-of-sandbox; ls /tmp | grep -v pytest").output == "file-of-sandbox\n"
    assert not Path("/tmp/file-of-sandbox").exists()
    assert sandbox.run("cat /tmp/file-of-sandbox").exit_code != 0


def test_there_are_no_capabilities_and_no_other_namespaces(sandbox):
    assert sandbox.run("grep -c '^Cap.*0000000000000000$' /proc/self/status").output == "5\n"
    assert sandbox.run("unshare -U true").exit_code != 0


def test_the_environment_and_open_files_are_not_this_process(sandbox, monkeypatch, outside):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    with (outside / "secret").open() as held:
        os.set_inheritable(held.fileno(), True)
        line = f"cat /proc/*/environ | tr '\\0' '\\n'; ls -l /proc/*/fd; cat <&{held.fileno()}"
        result = sandbox.run(line)
    assert "sk-of-the-user" not in result.output
    assert "secret" not in result.output


def call_number(number, *arguments):
    """Code that makes a system call, and writes its error: 38 is ENOSYS."""
    return (
        "import ctypes; c = ctypes.CDLL(None, use_errno=True);"
        f" print(c.syscall({', '.join(map(str, (number, *arguments)))}), ctypes.get_errno())"
    )


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
@pytest.mark.parametrize(
    ("name", "number", "arguments"),
    [
        ("keyctl", 250, (0, -3, 1)),
        ("add_key", 248, (0, 0, 0, 0, -3)),
        ("request_key", 249, (0, 0, 0, 0)),
        ("bpf", 321, (0, 0, 0)),
        ("perf_event_open", 298, (0, 0, -1, -1, 0)),
        ("userfaultfd", 323, (1,)),
        ("io_uring_setup", 425, (1, 0)),
        ("io_uring_register", 427, (0, 0, 0, 0)),
        ("getpid of x32", 0x40000000 + 39, ()),
    ],
)
def test_parts_of_the_kernel_are_left_out(sandbox, name, number, arguments):
    assert python(sandbox, call_number(number, *arguments)).output == "-1 38\n"


SPECIAL_BITS = """
import ctypes, mmap, os, struct
c = ctypes.CDLL(None, use_errno=True)
path = {path!r}.encode()

def file(name):
    with open(path + name, "wb") as made:
        made.write(b"#!/bin/sh")
    return path + name

AT, CREATE, TEMPORARY = -100, os.O_CREAT | os.O_RDWR, os.O_TMPFILE | os.O_RDWR
for bits in (0o4755, 0o2755, 0o6755):
    for interface in (0, 0x40000000):
        made = b"-%x-%o-" % (interface, bits)
        c.syscall(interface + 90, file(made + b"chmod"), bits)
        opened = os.open(file(made + b"fchmod"), os.O_RDWR)
        c.syscall(interface + 91, opened, bits)
        c.syscall(interface + 268, AT, file(made + b"fchmodat"), bits)
        c.syscall(interface + 452, AT, file(made + b"fchmodat2"), bits, 0)
        c.syscall(interface + 452, opened, b"", bits, 0x1000)
        c.syscall(interface + 85, path + made + b"creat", bits)
        c.syscall(interface + 2, path + made + b"open", CREATE, bits)
        c.syscall(interface + 257, AT, path + made + b"openat", CREATE, bits)
        how = struct.pack("QQQ", CREATE, bits, 0)
        c.syscall(interface + 437, AT, path + made + b"openat2", how, len(how))
        c.syscall(interface + 133, path + made + b"mknod", 0o100000 | bits, 0)
        c.syscall(interface + 259, AT, path + made + b"mknodat", 0o100000 | bits, 0)
        hidden = c.syscall(interface + 257, AT, os.path.dirname(path), TEMPORARY, bits)
        if hidden >= 0:
            os.link("/proc/self/fd/%d" % hidden, path + made + b"temporary")
    # chmod of 32-bit programs, by their own gate; the path lies where 32 bits reach it
    low = mmap.mmap(-1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40, 7)
    at = ctypes.addressof(ctypes.c_char.from_buffer(low))
    name = file(b"-compat-%o" % bits) + b"\\0"
    code = bytes([0x53, 0xB8, 15, 0, 0, 0, 0xBB]) + struct.pack("I", at + 512)
    code += b"\\xb9" + struct.pack("I", bits) + bytes([0xCD, 0x80, 0x5B, 0xC3])
    low[: len(code)], low[512 : 512 + len(name)] = code, name
    if at < 1 << 32 and os.fork() == 0:  # a kernel without that gate ends the process
        ctypes.CFUNCTYPE(ctypes.c_int)(at)()
        os._exit(0)
    os.wait()
print("tried")
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_no_call_leaves_a_file_with_a_special_bit(sandbox, root):
    """Such a file would be a shell of the user who started the sandbox, root included, for all users of the machine."""
    result = python(sandbox, SPECIAL_BITS.format(path=str(root / "made")))
    assert result.output.endswith("tried\n"), result.output
    assert len(list(root.iterdir())) > 20
    assert special(root) == []


def special(root):
    return [path.name for path in root.rglob("*") if path.lstat().st_mode & 0o6000]


@pytest.mark.parametrize(
    "line",
    [
        "cp /bin/sh shell; chmod 4755 shell",
        "cp /bin/sh shell; chmod u+s shell",
        "cp /bin/sh shell; chmod g+s shell; chmod 2755 shell",
        "install -m 4755 /bin/sh shell",
        "tar -xpf archive.tar",
        'python3 -c \'import os; os.mkdir("folder"); os.chmod("folder", 0o2755)\'',
    ],
)
def test_no_program_leaves_a_file_with_a_special_bit(sandbox, root, line):
    with tarfile.open(root / "archive.tar", "w") as archive:
        entry = tarfile.TarInfo("shell")
        entry.mode = 0o6755
        archive.addfile(entry)
    assert sandbox.run(line).exit_code != 0
    assert special(root) == []


def test_a_started_process_leaves_no_file_with_a_special_bit(sandbox, root):
    process = sandbox.start("cp /bin/sh shell; chmod 4755 shell; echo done")
    assert process.stdout.read().endswith(b"done\n")
    process.kill()
    assert (root / "shell").exists()
    assert special(root) == []


def test_other_modes_are_set(sandbox, root):
    line = "umask 0; touch a; chmod 1777 a; mkdir -m 1777 b; install -m 711 /bin/sh c; (umask 27; touch d)"
    assert sandbox.run(line).exit_code == 0
    modes = [(root / name).stat().st_mode & 0o7777 for name in "abcd"]
    assert modes == [0o1777, 0o1777, 0o711, 0o640]


def test_sockets_of_other_families_are_refused(root):
    """AF_VSOCK (40) leads from a virtual machine to its host, whatever the network namespace."""
    code = """
import errno, socket
for family in [*range(1, 46), 40]:
    for make in (socket.socket, socket.socketpair):
        try:
            print(family, "made") if make(family, socket.SOCK_STREAM) else None
        except OSError as error:
            if error.errno != errno.EAFNOSUPPORT:
                print(family, errno.errorcode[error.errno])
"""
    families = {
        network: {int(line.split()[0]) for line in python(sandboxed(root, network=network), code).output.splitlines()}
        for network in (False, True)
    }
    assert families == {False: {1, 2, 10, 16}, True: {1, 2, 10, 16}}
    # the second interface, and the gate of 32-bit programs, have numbers of their own for socket
    assert python(sandboxed(root), call_number(0x40000000 + 41, 40, 1, 0)).output == "-1 38\n"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the numbers are those of x86_64")
def test_other_calls_are_not(sandbox):
    """Those next to the ones that are left out."""
    for number in (247, 251, 299, 322, 424):
        assert not python(sandbox, call_number(number, -1, -1, -1, -1, -1)).output.endswith(" 38\n")


def test_the_filter_holds_for_started_processes(sandbox):
    process = sandbox.start(["grep", "Seccomp:", "/proc/self/status"])
    assert process.stdout.read().split() == [b"Seccomp:", b"2"]
    process.kill()


# -- network


def test_there_is_no_network(sandbox):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
        assert "refused" in python(sandbox, code).output
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
    interfaces = sandbox.run("tail -n +3 /proc/net/dev").output
    assert [line.split(":")[0].strip() for line in interfaces.splitlines()] == ["lo"]


def test_no_socket_of_this_machine_is_reached(sandbox, root, outside):
    """An abstract one belongs to the network namespace, one with a path to the files."""
    with socket.socket(socket.AF_UNIX) as abstract, socket.socket(socket.AF_UNIX) as named:
        abstract.bind(f"\0promptools-{os.getpid()}")
        abstract.listen()
        path = f"/tmp/promptools-{os.getpid()}"
        named.bind(path)
        named.listen()
        try:
            for address in (f"\\0promptools-{os.getpid()}", path):
                assert "Error" in python(sandbox, f"import socket; socket.socket(1).connect('{address}')").output
        finally:
            Path(path).unlink()


def test_the_network_is_there_if_it_is_allowed(root):
    with socket.create_server(("127.0.0.1", 0)) as server:
        code = f"import socket; socket.create_connection(('127.0.0.1', {server.getsockname()[1]}), 5); print('in')"
        assert python(sandboxed(root, network=True), code).output == "in\n"


# -- processes


def test_processes_outside_are_not_seen_signalled_or_traced(sandbox):
    code = f"""
import ctypes, os
print(os.getppid() < 10, max(int(name) for name in os.listdir("/proc") if name.isdigit()) < 10)
for process in ({os.getpid()}, {os.getppid()}, -1):
    try:
        os.kill(process, 0 if process < 0 else 9)
        print("sent", process)
    except OSError:
        pass
print(ctypes.CDLL(None).ptrace(16, {os.getpid()}, 0, 0))
"""
    lines = python(sandbox, code).output.split("\n")
    assert lines[0] == "True True"
    assert [line for line in lines[1:] if line] in ([["sent", "-1"], "-1"], ["sent -1", "-1"], ["-1"])


def test_a_time_out_ends_what_left_the_group(sandbox, root):
    """A session of its own, a double fork, and no handler can help."""
    line = (
        "trap '' TERM HUP INT; setsid sh -c 'while :; do date +%N > beat; sleep 0.05; done' >/dev/null 2>&1 & sleep 600"
    )
    for seconds in LIMITS:
        assert sandbox.run(line, timeout=seconds).timed_out
        if (root / "beat").exists():  # it had begun
            break
    assert_no_beat(root)


def test_what_a_command_leaves_running_ends_with_it(sandbox, root):
    line = "setsid sh -c 'while :; do date +%N > beat; sleep 0.05; done' & while ! [ -e beat ]; do sleep 0.02; done"
    result = sandbox.run(line)
    assert (result.exit_code, result.timed_out) == (0, False)
    assert_no_beat(root)


def test_nothing_is_left_the_moment_a_command_has_ended(sandbox):
    assert sandbox.run("for n in $(seq 50); do setsid sleep 61.25 & done").exit_code == 0
    assert not [path for path in Path("/proc").iterdir() if path.name.isdigit() and runs(path, b"61.25")]


def assert_no_beat(root):
    """Nothing writes the file any more."""
    before = (root / "beat").stat().st_mtime_ns
    time.sleep(0.3)
    assert (root / "beat").stat().st_mtime_ns == before


def test_it_dies_with_the_process_that_started_it(root):
    program = str(sandboxed(root)._bwrap)
    code = (
        "from promptools.harness.sandbox import BubblewrapSandbox as B; import sys;"
        " B(sys.argv[1], bwrap=sys.argv[2]).run('while :; do date +%N > beat; sleep 0.05; done')"
    )
    import subprocess

    with subprocess.Popen([sys.executable, "-c", code, str(root), program]) as process:
        deadline = time.monotonic() + 300
        while not (root / "beat").exists() and time.monotonic() < deadline:
            time.sleep(0.02)
        process.kill()
    assert_no_beat(root)


def test_a_started_process_outlives_the_thread_that_asked_for_it(sandbox):
    """bwrap dies with the thread that started it, and threads of a pool end."""
    started = []
    thread = threading.Thread(target=lambda: started.append(sandbox.start("cat")))
    thread.start()
    thread.join()
    (process,) = started
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"one\n"
    process.kill()


# -- limits


def test_many_processes_are_stopped(root):
    """As a fork bomb would, but of 400 at most, should nothing stop it."""
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, processes=50))
    code = """
import os, time
made = 0
try:
    while made < 400:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        made += 1
        time.sleep(0.001)
finally:
    print("made", made, flush=True)
time.sleep(60)
"""
    result = python(sandbox, code)
    assert "50 processes" in result.stopped or "Resource temporarily unavailable" in result.output
    assert not result.timed_out or "made 400" not in result.output
    assert not [path for path in Path("/proc").iterdir() if path.name.isdigit() and runs(path, b"made < 400")]


def runs(process, words):
    try:
        return words in (process / "cmdline").read_bytes()
    except OSError:
        return False


def test_memory_of_one_process_is_limited(root):
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, memory=100 * MEGABYTE))
    result = python(sandbox, "b = bytearray(300 * 2**20); print(len(b))")
    assert "MemoryError" in result.output


def test_memory_of_all_processes_together_is_limited(root):
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, memory=100 * MEGABYTE))
    code = "import os, time; os.fork(); os.fork(); b = bytearray(b'x') * (60 * 2**20); time.sleep(60)"
    assert "bytes of memory" in python(sandbox, code).stopped


def test_shared_memory_is_limited(root):
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, memory=100 * MEGABYTE))
    code = (
        "import mmap, time; m = mmap.mmap(-1, 300 * 2**20); [m.write(b'x' * 2**20) for _ in range(150)]; time.sleep(60)"
    )
    assert "bytes of memory" in python(sandbox, code).stopped


@pytest.mark.parametrize("folder", ["/tmp", "/dev/shm"])
def test_folders_in_memory_have_a_size(root, folder):
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, temporary=2 * MEGABYTE))
    result = sandbox.run(f"head -c 8M /dev/zero > {folder}/a; stat -c %s {folder}/a")
    assert "No space left" in result.output
    assert int(result.output.split()[-1]) <= 2 * MEGABYTE


def test_a_file_cannot_grow_beyond_its_limit(root):
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, file_size=MEGABYTE))
    sandbox.run("head -c 8M /dev/zero > big")
    assert (root / "big").stat().st_size <= MEGABYTE


def test_filling_the_disk_is_stopped(root):
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, disk=20 * MEGABYTE, file_size=4 * MEGABYTE))
    result = sandbox.run("for i in $(seq 50); do head -c 4M /dev/urandom > f$i; sync f$i; sleep 0.05; done")
    used = sum(path.stat().st_size for path in root.iterdir())
    shutil.rmtree(root)
    assert "of the disk" in result.stopped
    assert used < 150 * MEGABYTE


def test_open_files_are_limited_and_there_are_no_core_dumps(root):
    sandbox = sandboxed(root, limits=CommandLimits(timeout=300, open_files=64))
    limits = json.loads(
        python(
            sandbox,
            "import resource as r, json; print(json.dumps([r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE)]))",
        ).output
    )
    assert limits == [[64, 64], [0, 0]]


# -- input and output


def test_binary_output_is_text_for_the_model(sandbox):
    assert sandbox.run("printf 'a\\377b'").output == "a\ufffdb"


def test_output_without_end_is_ended_and_bounded(sandbox):
    result = sandbox.run("cat /dev/zero", timeout=0.3)
    assert (result.timed_out, result.truncated) == (True, True)
    assert len(result.output) < 10_200


def test_a_command_that_waits_for_input_gets_none(sandbox):
    result = sandbox.run("read answer; echo \"got '$answer'\"; tty")
    assert result.output == "got ''\nnot a tty\n"
    assert sandbox.run("cat", stdin="given").output == "given"
