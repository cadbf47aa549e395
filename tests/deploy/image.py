"""The image, built and run by what Debian has: debootstrap makes the base, buildah builds on it, runc runs it.

Neither needs a registry. A container runs as an engine runs it by default, but for its file system, which is read-only,
and its rights: it has no capability, and gets none.
"""

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).parents[2]
USER = 10001
_CERTIFICATES = Path("usr/local/share/ca-certificates")
_HOSTS = "127.0.0.1 localhost\n"


def run(*command: str | Path, **options: Any) -> str:
    """Runs a command to its end, and returns what it prints."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{command}\n{done.stdout[-5000:]}\n{done.stderr[-5000:]}"
    return done.stdout


@dataclass(frozen=True)
class Image:
    """Images and containers in `folder`."""

    folder: Path

    def buildah(self, *words: str | Path) -> str:
        storage = ("--root", self.folder / "images", "--runroot", self.folder / "running", "--storage-driver", "vfs")
        return run("buildah", *storage, *words, cwd=CHECKOUT).strip()

    def build(self) -> None:
        """Builds the image on a Debian as apt here gets it, with the certificates that this machine trusts."""
        sources = run(
            "apt-get", "indextargets", "--format", "deb $(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages",
            "Origin: Debian",
        )  # fmt: skip
        root = self.folder / "debian"
        _, mirror, release, _ = sources.splitlines()[0].split()
        run("debootstrap", "--variant=minbase", release, root, mirror)
        (root / "etc/apt/sources.list").write_text(sources)
        (root / _CERTIFICATES).mkdir(parents=True, exist_ok=True)
        for certificate in (Path("/") / _CERTIFICATES).glob("*.crt"):
            (root / _CERTIFICATES / certificate.name).write_bytes(certificate.read_bytes())
        container = self.buildah("from", "scratch")
        self.buildah("add", "--quiet", container, root, "/")
        self.buildah("commit", "--quiet", "--rm", container, "localhost/debian")
        self.buildah(
            "build", "--isolation", "chroot", "--network", "host", "--format", "docker", "--layers=false",
            "--build-arg", "BASE=localhost/debian", "--build-arg", "VERSION=1.2.3", "--build-arg", "REVISION=abc",
            "--file", "deploy/image/Containerfile", "--tag", "localhost/zync", ".",
        )  # fmt: skip

    @cached_property
    def config(self) -> dict[str, Any]:
        """What the image says of how it is run."""
        config: dict[str, Any] = json.loads(self.buildah("inspect", "--type", "image", "localhost/zync"))
        return dict(config["Docker"]["config"])

    @cached_property
    def root(self) -> Path:
        """The image's files."""
        return Path(self.buildah("mount", self.buildah("from", "localhost/zync")))

    @contextmanager
    def container(self, *words: str | Path, network: bool = False, **options: Any) -> Iterator["Container"]:
        """Runs the image with these words, which are zync's, until the context ends.

        Args:
            words: What comes after the image's name; nothing for its default command.
            network: Whether it has this machine's network; else it has none but its own localhost.
            options: Options of Container.
        """
        container = Container(self, tuple(map(str, words)) or tuple(self.config["Cmd"]), network, **options)
        container.start()
        try:
            yield container
        finally:
            container.end()

    def run(self, *words: str | Path, **options: Any) -> "subprocess.CompletedProcess[str]":
        """Runs the image to the end of its command."""
        with self.container(*words, **options) as container:
            out, err = container.process.communicate(timeout=600)
            return subprocess.CompletedProcess(words, container.process.returncode, out, err)


@dataclass
class Container:
    """A container.

    Attributes:
        image: Its image.
        words: The arguments of its entry point.
        network: Whether it has this machine's network.
        project: The folder that it has as /project, to be read.
        lake: The folder that it has as /lake, which its user may write to.
        entrypoint: What goes before the image's own entry point.
    """

    image: Image
    words: tuple[str, ...]
    network: bool
    project: Path | None = None
    lake: Path | None = None
    entrypoint: tuple[str, ...] | None = None
    name: str = field(default_factory=lambda: f"zync-{uuid.uuid4().hex[:8]}")

    def _runc(self, *words: str) -> list[str]:
        return ["runc", "--root", str(self.image.folder / "runc"), *words]

    def start(self) -> None:
        bundle = self.image.folder / self.name
        bundle.mkdir()
        (bundle / "hosts").write_text(_HOSTS)
        (bundle / "config.json").write_text(json.dumps(self._specification(bundle)))
        self.process = subprocess.Popen(
            self._runc("run", "--bundle", str(bundle), self.name),
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def execute(self, *command: str) -> "subprocess.CompletedProcess[str]":
        """Runs another command in the container, as its user."""
        return subprocess.run(self._runc("exec", self.name, *command), capture_output=True, text=True, check=False)

    def stop(self) -> "subprocess.CompletedProcess[str]":
        """Ends the container as an engine does, by SIGTERM to its first process."""
        run(*self._runc("kill", self.name, "TERM"))
        out, err = self.process.communicate(timeout=90)
        return subprocess.CompletedProcess(self.words, self.process.returncode, out, err)

    def end(self) -> None:
        subprocess.run(self._runc("delete", "--force", self.name), capture_output=True, check=False)
        self.process.wait(30)

    def _specification(self, bundle: Path) -> dict[str, Any]:
        """How runc runs it: https://github.com/opencontainers/runtime-spec."""
        config = self.image.config
        user, group = map(int, config["User"].split(":"))
        namespaces = ["pid", "mount", "ipc", "uts", *([] if self.network else ["network"])]
        mounts = [
            {"destination": "/proc", "type": "proc", "source": "proc"},
            {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
            {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["mode=1777", "size=64m"]},
            {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "nodev", "mode=1777"]},
            _bind(bundle / "hosts", "/etc/hosts", "ro"),
        ]
        if self.project:
            mounts.append(_bind(self.project, "/project", "ro"))
        if self.lake:
            os.chown(self.lake, user, group)
            mounts.append(_bind(self.lake, "/lake", "rw"))
        nothing: dict[str, list[str]] = {name: [] for name in ("bounding", "effective", "permitted", "inheritable")}
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": user, "gid": group},
                "args": [*(self.entrypoint or config["Entrypoint"]), *self.words],
                "env": config["Env"],
                "cwd": config["WorkingDir"],
                "noNewPrivileges": True,
                "capabilities": nothing,
            },
            "root": {"path": str(self.image.root), "readonly": True},
            "hostname": self.name,
            "mounts": mounts,
            "linux": {"namespaces": [{"type": name} for name in namespaces]},
        }


def _bind(source: Path, destination: str, mode: str) -> dict[str, Any]:
    return {"destination": destination, "type": "bind", "source": str(source), "options": ["bind", mode]}
