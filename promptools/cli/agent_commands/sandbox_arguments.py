"""Arguments that say where commands of a model run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from promptools.errors import UsageError

if TYPE_CHECKING:
    from promptools.harness.sandbox import CommandLimits, Sandbox


def add_sandbox(parser: argparse.ArgumentParser, *, image: str | None = None) -> None:
    """Add `--sandbox` and what belongs to it; `image` is the default one."""
    parser.set_defaults(default_image=image)
    where = parser.add_argument_group("where commands run")
    where.add_argument(
        "--sandbox",
        choices=("bubblewrap", "docker", "local"),
        default="bubblewrap",
        help="local: with your own permissions, without isolation (default: bubblewrap)",
    )
    default = f" (default: {image})" if image else ""
    where.add_argument("--image", metavar="IMAGE", help=f"image of --sandbox docker{default}")
    where.add_argument("--network", action="store_true", help="let commands use the network")


def open_sandbox(
    arguments: argparse.Namespace, root: Path, limits: CommandLimits | None = None, *, writable_git: bool = False
) -> Sandbox:
    """Open the sandbox that the arguments name, with `root` as its workspace, `.git` read-only unless told."""
    from promptools.harness.sandbox import BubblewrapSandbox, DockerSandbox, LocalSandbox

    if arguments.sandbox == "docker":
        image = arguments.image or arguments.default_image
        if not image:
            raise UsageError("--sandbox docker needs an image: name it with --image")
        return DockerSandbox(image, root, network=arguments.network, writable_git=writable_git, limits=limits)
    if arguments.image:
        raise UsageError("--image is for --sandbox docker")
    if arguments.sandbox == "local":
        return LocalSandbox(root, allow_unsandboxed=True, limits=limits)
    return BubblewrapSandbox(root, network=arguments.network, writable_git=writable_git, limits=limits)
