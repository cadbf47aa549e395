"""The server that the tests of kills, harm and outages use: S3Mock, or the one that a variable names."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.store.azure import CONTAINER, running_azure
from tests.store.gs import BUCKET as GS_BUCKET
from tests.store.gs import running_gs
from tests.store.proxy import Proxy, running_proxy
from tests.store.s3 import BUCKET, running_s3
from tests.store.versity import ROOT, running_versity

SERVER = os.environ.get("ZYNC_TEST_STORE_SERVER", "")
"""versitygw, gs or azure; empty for S3Mock."""
LAKES = {"gs": f"gs://{GS_BUCKET}", "azure": f"az://{CONTAINER}"}.get(SERVER, f"s3://{BUCKET}")
"""The location that the tests' lakes are in."""
_ENDPOINT = "STORAGE_EMULATOR_HOST" if SERVER == "gs" else "AWS_ENDPOINT_URL"


@contextmanager
def running_store(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the server, and yields the variables by which clients find it."""
    if SERVER == "versitygw":
        with running_versity(folder) as server:
            yield server.environment(ROOT)
        return
    with {"gs": running_gs, "azure": running_azure}.get(SERVER, running_s3)(folder) as variables:
        yield variables


@contextmanager
def proxy_of_store(environment: dict[str, str]) -> Iterator[tuple[Proxy, dict[str, str]]]:
    """Runs a proxy in front of the server, and yields it with the variables by which clients go through it.

    Not for Azurite: a key's signature is over headers that a proxy does not hand on, and with a token instead of a key
    it answers Arrow's deletions with 500.
    """
    with running_proxy(environment[_ENDPOINT]) as proxy:
        yield proxy, {**os.environ, _ENDPOINT: proxy.url}
