"""`--metrics` listens where it is told to, and says where that is."""

import io
import socket
import urllib.request

import pytest

from zync.cli.console import ConsoleOutput
from zync.cli.options import measuring
from zync.errors import UsageError
from zync.metrics.base import Metrics, StandbyMetrics
from zync.metrics.server import serving


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def answer(where: str) -> str:
    with urllib.request.urlopen(f"http://{where}", timeout=5) as response:
        return str(response.read().decode())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "0.0.0.0"])  # noqa: S104 - for a moment, and to say that it lives
def test_an_ipv4_address_or_a_name_is_listened_at(host: str) -> None:
    with serving(f"{host}:0", Metrics(stuck_after=60)) as port:
        assert answer(f"127.0.0.1:{port}/healthz") == "alive\n"


@needs_ipv6
@pytest.mark.parametrize("host", ["[::1]", "[::]"])
def test_an_ipv6_address_is_listened_at(host: str) -> None:
    with serving(f"{host}:0", Metrics(stuck_after=60)) as port:
        assert answer(f"[::1]:{port}/readyz") == "ready\n"


@needs_ipv6
def test_the_printed_address_is_one_that_answers() -> None:
    for host in ("localhost", "[::1]"):
        said = io.StringIO()
        with measuring("zync.sync.metrics:SyncMetrics", f"{host}:0", ConsoleOutput(err=said)):
            (address,) = said.getvalue().split()[-1:]
            assert address.startswith(f"http://{host}:")
            assert "zync_sync" in answer(address.removeprefix("http://"))


@pytest.mark.parametrize(
    "address",
    [
        "", "9464", ":9464", "localhost", "localhost:", "localhost:http", "localhost:-1", "localhost:999999",
        "localhost:99999", "::1:9464", "[::1]", "[]:9464", "[::1:9464", "a..b:9464", "no such host:1", "192.0.2.1:0",
    ],
)  # fmt: skip
def test_an_address_that_is_none_is_the_users_mistake(address: str) -> None:
    with (
        pytest.raises(UsageError, match=r"--metrics .*: .*give HOST:PORT, like localhost:9464 or \[::1\]:9464"),
        serving(address, Metrics(stuck_after=60)),
    ):
        pass


def test_a_standby_that_waits_is_ready_and_says_for_whom() -> None:
    """Or a rolling update, which ends the old process when the new one is ready, would never end it."""
    metrics = StandbyMetrics(stuck_after=60)
    with serving("localhost:0", metrics) as port:
        metrics.wait_for("zync sync on host (pid 7)")
        assert answer(f"localhost:{port}/readyz") == "standby: zync sync on host (pid 7) works\n"
        assert "zync_standby 1.0" in answer(f"localhost:{port}/metrics")
        metrics.wait_for(None)
        assert answer(f"localhost:{port}/readyz") == "ready\n"
        assert "zync_standby 0.0" in answer(f"localhost:{port}/metrics")


def test_a_port_that_is_taken_is_the_users_mistake() -> None:
    metrics = Metrics(stuck_after=60)
    with (
        serving("localhost:0", metrics) as port,
        pytest.raises(UsageError, match="cannot listen there"),
        serving(f"localhost:{port}", metrics),
    ):
        pass
