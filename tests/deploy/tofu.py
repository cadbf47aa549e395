"""OpenTofu, and what it makes of deploy/terraform. `make test-terraform` runs this module, which has OpenTofu built."""

import functools
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from tests.deploy.helm import CHART, CHECKOUT
from tests.deploy.providers import running_providers
from tests.golang import GoProgram, NotBuiltError

TERRAFORM = CHECKOUT / "deploy" / "terraform"
CLOUDS = ("eks", "gke", "aks")
TOFU = GoProgram(
    module="github.com/opentofu/opentofu",
    version="v1.12.6",
    sum="h1:0VT4P8pMmGcCUnQ9JDrJ+Qg2d35Vzm4FFd/9+H7oF98=",
    package="cmd/tofu",
    oldest_go=(1, 26),
    flags=("-gcflags=all=-N -l", "-ldflags=-s -w"),  # as helm's
    has_replacements=True,
)


def program() -> str | None:
    """Returns the tofu on the path, the one that `make test-terraform` built, or Terraform; None if there is none."""
    return shutil.which("tofu") or (str(TOFU.path) if TOFU.path.exists() else shutil.which("terraform"))


def run(folder: Path, *words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Runs OpenTofu in a folder, without settings or plugins of this machine."""
    own = {"TF_CLI_CONFIG_FILE": os.devnull, "CHECKPOINT_DISABLE": "1", "TF_IN_AUTOMATION": "1"}
    return subprocess.run(
        [program() or "tofu", *words],
        cwd=folder,
        env={**os.environ, **own, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def copy(scratch: Path) -> Path:
    """Copies the modules and the chart, as OpenTofu writes beside what it reads; returns the copy of TERRAFORM."""
    shutil.copytree(CHART, scratch / "chart")
    return Path(shutil.copytree(TERRAFORM, scratch / "terraform", ignore=shutil.ignore_patterns(".terraform*")))


@functools.cache
def mocked_applies(cloud: str) -> dict[str, dict[str, Any]]:
    """Returns what `tofu test` made of a cloud's module, by run: the resources, by their addresses.

    Raises:
        AssertionError: A run failed.
    """
    with tempfile.TemporaryDirectory() as scratch, running_providers() as variables:
        folder = copy(Path(scratch)) / "modules" / cloud
        init = run(folder, "init", "-input=false", "-no-color", **variables)
        assert init.returncode == 0, init.stderr
        done = run(folder, "test", "-json", "-verbose", "-no-color", **variables)
    states, statuses = {}, {}
    for message in map(json.loads, done.stdout.splitlines()):
        if status := message.get("test_run", {}).get("status"):
            statuses[message["@testrun"]] = status
        elif message.get("type") == "test_state":
            state = message["test_state"]
            state = state.get("values", state)  # Terraform has it a level higher
            states[message["@testrun"]] = dict(_resources(state["root_module"]))
    # Not the exit code: Terraform ends with 1 on AKS, as it destroys nothing that has prevent_destroy, not even mocks.
    assert statuses == dict.fromkeys(("least", "most", "wrong"), "pass"), done.stdout + done.stderr
    return states


def _resources(module: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    own = [(resource["address"], resource["values"]) for resource in module.get("resources", ())]
    return own + [one for child in module.get("child_modules", ()) for one in _resources(child)]


if __name__ == "__main__" and not TOFU.path.exists() and not shutil.which("tofu"):
    print("building OpenTofu (seven minutes of a core, once)")
    try:
        TOFU.build()
    except NotBuiltError as error:
        print(f"it is not used: {error}")
