"""The image's health check: whether `/healthz` answers, where the container's zync has `--metrics`.

It takes the address from the command line of the container's first process. Without `--metrics` it can ask nothing and
exits 0: the engine knows by itself whether the process lives.
"""

import re
import sys
import urllib.error
import urllib.request
from pathlib import Path

_WILDCARDS = {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - compared, not listened at
_SECONDS = 4


def metrics_address(command: bytes) -> str | None:
    """Returns HOST:PORT of a command line's `--metrics`; None without that option.

    Args:
        command: The command line, as /proc has it.
    """
    match = re.search(rb"\0--metrics[=\0]([^\0]+)", command)
    if not match:
        return None
    host, _, port = match[1].decode().rpartition(":")
    return f"{_WILDCARDS.get(host, host)}:{port}"


def main() -> int:
    """Prints the answer; 1 if there is none."""
    address = metrics_address(Path("/proc/1/cmdline").read_bytes())
    if address is None:
        print("no --metrics: nothing to ask")
        return 0
    try:
        with urllib.request.urlopen(f"http://{address}/healthz", timeout=_SECONDS) as answer:  # noqa: S310 - http
            print(answer.read().decode().strip())
    except (urllib.error.URLError, OSError) as error:
        print(f"http://{address}/healthz: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
