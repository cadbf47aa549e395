"""What `pip install .` gives: all that zync needs is in the wheel, and nothing is taken from the checkout."""

import json
import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Callable
from pathlib import Path

import pytest

import zync

CHECKOUT = Path(zync.__file__).parents[1]
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
Run = Callable[..., str]


def called(command: list[str | Path], cwd: Path) -> str:
    ours = ("PYTHON", "ZYNC_LAKE", "ZYNC_CONFIG")
    outside = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    done = subprocess.run(command, cwd=cwd, env=outside, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new environment with the wheel, and with our dependencies but not our zync.

    Of a folder that a .pth file names, Python reads no further .pth files: so not the one of the editable zync.
    """
    folder = tmp_path_factory.mktemp("wheel")
    called([*PIP, "wheel", "--no-deps", "--wheel-dir", folder, CHECKOUT], folder)
    (wheel,) = folder.glob("*.whl")
    made = folder / "environment"
    venv.create(made)
    called([*PIP, "--python", made / "bin" / "python", "install", "--no-deps", "--no-index", wheel], folder)
    (packages,) = made.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return made


@pytest.fixture
def run(environment: Path, tmp_path: Path) -> Run:
    """Runs a program of the new environment, in a folder outside the checkout."""
    return lambda program, *args: called([environment / "bin" / program, *args], tmp_path)


def test_what_runs_is_the_wheel_and_not_the_checkout(environment: Path, run: Run) -> None:
    code = (
        "import sys, zync, zync.resources as s; from importlib.metadata import distribution as d; "
        "print(zync.__file__, s.data_folder('sql'), s.data_folder('demo'), d('zync').locate_file(''), sep='\\n'); "
        "print(*sys.path, sep='\\n')"
    )
    *places, dependencies = run("python", "-c", code).splitlines()
    assert dependencies == sysconfig.get_path("purelib")
    for place in places[:4]:
        assert Path(place).is_relative_to(environment)
    assert str(CHECKOUT) not in places
    (packages,) = environment.glob("lib/python*/site-packages")
    for name in ("sql", "demo"):
        ours, shipped = CHECKOUT / name, packages / "zync" / "_data" / name
        assert {path.relative_to(shipped) for path in shipped.rglob("*.*")} >= {
            path.relative_to(ours) for path in ours.glob("**/*.*") if "lake" not in path.parts
        }
    assert not [path for path in packages.rglob("*") if path.parts[-1] in ("tests", "bench")]


def test_the_wheel_syncs_the_demo(run: Run, tmp_path: Path) -> None:
    assert "sync-from kafka raw" in run("zync", "--help")
    run("zync", "init", "new")
    assert (tmp_path / "new" / "zync.yaml").exists()

    code = "import shutil, zync.resources as s; shutil.copytree(s.data_folder('demo'), '.', dirs_exist_ok=True)"
    run("python", "-c", code)
    assert run("zync", "load", "raw", "consume-1.jsonl") == "loaded 3 records, seqno 1 to 3\n"
    assert run("zync", "sync", "raw", "staging").startswith("sync 1: 1 transaction of 3 records; output rows: order 1;")
    (row,) = (json.loads(line) for line in run("zync", "cat", "staging", "--kind", "output").splitlines())
    assert (row["seqno"], row["kafka"]) == (3, {"topic": "order", "partition": 0, "offset": 0})
    assert row["key"] == {"customerID": 1}
    assert row["value"] == {"customerID": 1, "menuID": 200, "qty": 2, "total": 3.98}
