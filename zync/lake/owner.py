"""Who holds a lock or a lease: written beside the table, for the others to read."""

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path

from zync.text import strict_json, to_json

_STATE, _START = 0, 19
"""Places in /proc/PID/stat after the name: the state, and the start in clock ticks since the system's."""


@dataclass(frozen=True)
class Owner:
    """A process that holds a lock or a lease.

    Attributes:
        id: A random id: another for each time that a lock or lease is taken.
        host: Its host's name.
        pid: Its process id there.
        what: What it does, like `sync`.
        system: The boot and the PID namespace in which `pid` is valid; empty where they cannot be read.
        start: When it started, in clock ticks since that boot: another process of the same `pid` has another.
    """

    id: str = ""
    host: str = ""
    pid: int = 0
    what: str = ""
    system: str = ""
    start: str = ""

    def __str__(self) -> str:
        return f"zync {self.what} on {self.host} (pid {self.pid})" if self.pid else "another zync"

    def is_dead(self) -> bool:
        """Returns whether it was a process of this system, and has ended; False if that cannot be known."""
        return self._is_here() and not self._runs()

    def is_alive(self) -> bool:
        """Returns whether it is a process of this system that has not ended; False if that cannot be known."""
        return self._is_here() and self._runs()

    def _is_here(self) -> bool:
        return bool(self.system) and self.system == _system()

    def _runs(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except (ProcessLookupError, OverflowError):
            return False
        except PermissionError:  # another user's
            pass
        state, start = _stat(self.pid)
        return not start or (start == self.start and state not in ("Z", "X"))


def this_process(what: str) -> Owner:
    """Returns this process as an owner with a new id."""
    return Owner(uuid.uuid4().hex, socket.gethostname(), os.getpid(), what, _system(), _stat(os.getpid())[1])


def to_bytes(owner: Owner, **values: int | bool) -> bytes:
    """Returns an owner and further values as JSON."""
    return f"{to_json({**asdict(owner), **values})}\n".encode()


def from_bytes(content: bytes) -> tuple[Owner, dict[str, object]]:
    """Returns the owner and the further values in JSON; an empty owner for other content."""
    values: dict[str, object] = {}
    with suppress(ValueError):
        parsed = strict_json(content)
        values = parsed if isinstance(parsed, dict) else {}
    known = {field.name: values.pop(field.name) for field in fields(Owner) if field.name in values}
    if any(not isinstance(value, type(getattr(Owner, name))) for name, value in known.items()):
        known = {}
    return Owner(**known), values  # type: ignore[arg-type]


def _system() -> str:
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str]:
    """Returns the state and the start of a process; empty if /proc does not show it."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "", ""
    return words[_STATE], words[_START]
