"""Docker images of instances: their `/testbed` as a workspace on this machine, and commands in their containers."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

from promptools.errors import clip
from promptools.harness.sandbox import CommandLimits, DockerSandbox, SandboxError
from promptools.json_values import is_array

TESTBED = "/testbed"
"""Where the images have the repository, at its base commit."""
PROGRAMS = "/opt/miniconda3/envs/testbed/bin"
"""Where the images have the programs with which the repository's tests run."""
LIFETIME_MINUTES = 12 * 60
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def docker_problem(docker: str = "docker") -> str:
    """Return why no container can be started here; empty if one can."""
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
    """Copy `/testbed` of an image into an empty folder, and return a sandbox in which the folder is `/testbed`.

    So the tools for files work on this machine, and commands with the programs of the image. An image that is not here
    is pulled. Raises `SandboxError` if that fails.
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
    """Return where an image looks for programs."""
    text = _call(docker, "image", "inspect", "--format", "{{json .Config.Env}}", image)
    try:
        variables: Any = json.loads(text)
    except ValueError:
        variables = None
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
