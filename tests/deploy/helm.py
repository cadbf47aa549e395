"""Helm, and what it makes of the chart. `make helm` runs this module, which has Helm built where it is not there."""

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.golang import GoProgram, NotBuiltError

CHECKOUT = Path(__file__).parents[2]
CHART = CHECKOUT / "deploy" / "chart"
CASES = sorted((CHART / "ci").glob("*.yaml"))
VERSIONS = ("1.33", "1.37")
"""The versions of Kubernetes whose schemas the manifests have to fit."""
HELM = GoProgram(
    module="helm.sh/helm/v3",
    version="v3.22.0",
    sum="h1:n1if5iQgHYsujPAcO5oonH/KiSNUmqmUF0iGVjSF3AU=",
    package="cmd/helm",
    oldest_go=(1, 26),
    flags=("-gcflags=all=-N -l", "-ldflags=-s -w"),  # without optimisation: compiled in two thirds of the time
)


def program() -> str | None:
    """Returns the helm on the path, or the one that `make helm` has built; None if there is neither."""
    return shutil.which("helm") or (str(HELM.path) if HELM.path.exists() else None)


def run(*words: str | Path) -> "subprocess.CompletedProcess[str]":
    """Runs helm."""
    return subprocess.run([program() or "helm", *words], capture_output=True, text=True, check=False)


def template(
    values: Path, *more: str, version: str = VERSIONS[0], chart: Path = CHART
) -> "subprocess.CompletedProcess[str]":
    """Runs `helm template` with a file of values, for a release `shop` in the namespace `data`."""
    words = ("--namespace", "data", "--kube-version", f"{version}.0", "--values", values, *more)
    return run("template", "shop", chart, *words)


@functools.cache
def manifests(values: Path, *more: str, version: str = VERSIONS[0], chart: Path = CHART) -> list[dict[str, Any]]:
    """Returns what `helm template` makes of a file of values."""
    done = template(values, *more, version=version, chart=chart)
    assert done.returncode == 0, done.stderr
    return [document for document in yaml.safe_load_all(done.stdout) if document]


if __name__ == "__main__" and program() is None:
    print("building helm (two or three minutes, once)")
    try:
        HELM.build()
    except NotBuiltError as error:
        print(f"the tests of the chart are skipped: {error}")
