"""The workspaces in which an agent changes a repository: git work trees.

A work tree is made from a local clone, or from the Docker image of a SWE-bench instance. The agent's changes are the
difference from the initial state of the work tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from promptools.errors import PromptoolsError, UsageError, clip
from promptools.harness.sandbox import CommandLimits, DockerSandbox, SandboxError
from promptools.harness.sandbox.folder_walk import walk
from promptools.json_values import is_array, try_json

# Work trees of git: they are made from a local clone, and compared with their initial state.
#
# The changes are read with a separate git repository outside of the work tree. The work tree's own `.git` belongs to
# the model: it may commit, stash, or delete `.git`, and write settings there that name programs to run. So git is never
# run with a repository that commands of the model may have changed.


_DIFF = (
    *("diff", "--cached", "--binary", "--no-color", "--no-renames", "--no-ext-diff", "--no-textconv"),
    *("--src-prefix=a/", "--dst-prefix=b/"),
)
_LINK = b"160000"
"""The file mode of submodules in git's index."""
_OWN = {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
"""Environment variables that make git use only the settings of the repository. Which files are ignored, and how lines
end, then does not depend on the machine."""


_GENERATED = "__pycache__/\n*.pyc\n*.pyo\n.pytest_cache/\n"
"""Patterns of new files that are side effects of running programs. Not every repository has them in `.gitignore`."""


class GitError(PromptoolsError):
    """A git command failed."""


def find_clone(folder: Path, repo: str) -> Path:
    """Return the local clone of the repository `owner/name` in a folder.

    The clone may be at `owner/name`, `owner__name` or `name` in the folder. Raises `UsageError` if none is found.
    """
    names = (repo, repo.replace("/", "__"), repo.partition("/")[2])
    for name in names:
        if (folder / name / ".git").exists() or (folder / name / "HEAD").is_file():
            return (folder / name).resolve()
    places = ", ".join(repr(str(folder / name)) for name in names)
    raise UsageError(f"there is no clone of {repo!r}: git clone it into one of {places}")


def check_commit(clone: Path, commit: str) -> None:
    """Raise `UsageError` if a clone does not contain the commit `commit`."""
    try:
        _git("cat-file", "-e", f"{commit}^{{commit}}", cwd=clone, settings={})
    except GitError as error:
        raise UsageError(f"the clone {str(clone)!r} has no commit {commit}; git fetch it there ({error})") from error


def check_out(clone: Path, commit: str, folder: Path) -> None:
    """Make a git work tree in an empty folder, with the files of a commit.

    The work tree's repository has only this commit and the commits before it. A later commit might contain the solution
    of the issue that the agent has to resolve.
    """
    _git("init", "--quiet", ".", cwd=folder)
    _git("fetch", "--quiet", "--no-tags", str(clone), commit, cwd=folder, settings={})
    _git("checkout", "--quiet", "-B", "main", "FETCH_HEAD", cwd=folder)
    (folder / ".git" / "FETCH_HEAD").unlink()
    for name, value in (("name", "agent"), ("email", "agent@localhost")):  # git needs them for commits and stashes
        _git("config", f"user.{name}", value, cwd=folder)


class WorkTreeChanges:
    """Finds the changes made in a work tree since this object was created.

    The initial state is kept in a separate repository, `git_folder`.
    """

    def __init__(self, root: Path, git_folder: Path) -> None:
        self._root = root
        self._settings = {**_OWN, "GIT_DIR": str(git_folder), "GIT_WORK_TREE": str(root)}
        source = root / ".git"
        parts = (source, source / "objects", source / "index")
        if not parts[-1].is_file() or any(part.is_symlink() for part in parts):
            raise GitError(f"there is no git repository in {str(root)!r}, or it is made of links")
        self._run("init", "--quiet", "--template=")
        (git_folder / "info").mkdir(exist_ok=True)
        (git_folder / "info" / "exclude").write_text(_GENERATED, encoding="utf-8")
        shutil.copytree(
            source / "objects",
            git_folder / "objects",
            symlinks=True,
            ignore=shutil.ignore_patterns("alternates"),
            dirs_exist_ok=True,
        )
        shutil.copyfile(source / "index", git_folder / "index")
        entries = self._run("ls-files", "--stage", "-z").split(b"\0")
        self._submodules = {os.fsdecode(entry.partition(b"\t")[2]) for entry in entries if entry.startswith(_LINK)}
        self._add()
        self._tree = self._run("write-tree").decode().strip()

    def patch(self) -> str:
        """Return all changes, including new files, as a patch for `git apply`.

        Submodules are left out, and so are new files that `.gitignore` matches or that are a side effect of running
        programs, such as `__pycache__`. If the changes are not valid UTF-8, the patch is in git's binary format.
        """
        self._remove_repositories()
        self._add()
        changes = self._run(*_DIFF, self._tree)
        try:
            return changes.decode("utf-8")
        except UnicodeDecodeError:
            attributes = Path(self._settings["GIT_DIR"], "info", "attributes")
            attributes.parent.mkdir(exist_ok=True)
            attributes.write_text("* -diff\n", encoding="utf-8")
            return self._run(*_DIFF, self._tree).decode("utf-8")

    def _add(self) -> None:
        self._run("add", "--all", "--", ".", *(f":(exclude,literal){name}" for name in sorted(self._submodules)))

    def _remove_repositories(self) -> None:
        """Remove `.git` from repositories nested in the work tree, so that git compares their files."""
        for folder, names, files in walk(self._root):
            inside = Path(folder).relative_to(self._root).as_posix()
            if inside in self._submodules:
                names.clear()
            elif inside != "." and ".git" in names:
                shutil.rmtree(Path(folder, ".git"))
            elif inside != "." and ".git" in files:
                Path(folder, ".git").unlink()
            names[:] = [name for name in names if name != ".git"]

    def _run(self, *arguments: str) -> bytes:
        return _git(*arguments, cwd=self._root, settings=self._settings)


def _git(*arguments: str, cwd: Path, settings: Mapping[str, str] = _OWN) -> bytes:
    """Run git and return its output. GIT_DIR and similar environment variables of this process have no effect."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=cwd, env={**inherited, **settings}, check=False, capture_output=True
        )
    except FileNotFoundError as error:
        raise UsageError("git is not installed, or not on PATH") from error
    if done.returncode:
        text = done.stderr.decode("utf-8", "replace").strip()
        raise GitError(f"`git {arguments[0]}` failed: {clip(text) or f'status {done.returncode}'}")
    return done.stdout


# Docker images of instances: `/testbed` becomes a workspace on this machine, and commands run in containers.


TESTBED = "/testbed"
"""The path, inside an image, of the repository at its base commit."""
PROGRAMS = "/opt/miniconda3/envs/testbed/bin"
"""The folder, inside an image, with the programs that run the repository's tests."""
LIFETIME_MINUTES = 12 * 60
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def docker_problem(docker: str = "docker") -> str:
    """Return why no container can be started on this machine; empty if Docker works."""
    if shutil.which(docker) is None:
        return f"{docker!r} is not installed, or not on PATH"
    command = [docker, "version", "--format", "{{.Server.Version}}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    return clip(" ".join(done.stderr.split()) or f"status {done.returncode}") if done.returncode else ""


def open_image(
    image: str,
    root: Path,
    *,
    network: bool = False,
    limits: CommandLimits | None = None,
    docker: str = "docker",
) -> DockerSandbox:
    """Copy `/testbed` of an image into the empty folder `root`; return a sandbox that mounts `root` as `/testbed`.

    File tools can therefore work on this machine, while commands run in a container with the programs of the image. An
    image that is not on this machine is pulled. Raises `SandboxError` on failure.
    """
    container = _call(docker, "create", image, "true").strip()
    try:
        _call(docker, "cp", f"{container}:{TESTBED}/.", str(root))
    finally:
        _call(docker, "rm", "-f", container)
    return DockerSandbox(
        image,
        root,
        workspace=TESTBED,
        network=network,
        writable_git=True,
        lifetime_minutes=LIFETIME_MINUTES,
        limits=limits,
        docker=docker,
        options=["--env", f"PATH={PROGRAMS}:{_path_of(docker, image)}"],
    )


def _path_of(docker: str, image: str) -> str:
    """Return the PATH that an image sets, or else a default PATH."""
    text = _call(docker, "image", "inspect", "--format", "{{json .Config.Env}}", image)
    variables = try_json(text)
    settings = [str(item).partition("=") for item in variables] if is_array(variables) else []
    return next((value for name, _, value in settings if name == "PATH"), _DEFAULT_PATH)


def _call(docker: str, *arguments: str) -> str:
    try:
        done = subprocess.run([docker, *arguments], check=False, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise SandboxError(f"{docker!r} is not installed, or not on PATH") from error
    if done.returncode:
        raise SandboxError(f"`docker {arguments[0]}` failed: {clip(done.stderr.strip())}")
    return done.stdout
