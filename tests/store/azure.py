"""A server that speaks Azure's Blob API: Azurite, fetched from npm once, by a lock file with hashes.

It ignores `startFrom`, by which delta-rs lists the end of a log in Azure; so a process in front of it takes what comes
before out of the answer. `python -m tests.store.azure URL` runs that process, and prints its URL.
"""

import base64
import hashlib
import hmac
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlparse
from xml.sax.saxutils import unescape

import pytest
from pyarrow.fs import AzureFileSystem

from tests.store.proxy import Request, running_proxy
from tests.store.servers import in_front, listening
from zync import java
from zync.kafka.dev_broker import free_port

_PACKAGE = Path(__file__).parent / "azurite"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that Azurite has by itself, and the key that its documentation gives it."""
CONTAINER = "lake"


def _script() -> Path:
    """Returns the path of the server's script, and fetches it the first time, in half a minute."""
    if not shutil.which("node") or not shutil.which("npm"):
        pytest.skip("Node.js and npm are needed for Azurite: install them (Debian: nodejs, npm)")
    version = json.loads((_PACKAGE / "package.json").read_text())["dependencies"]["azurite"]
    folder = java.cache_folder() / f"azurite-{version}"
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as parent:
            scratch = shutil.copytree(_PACKAGE, Path(parent) / "azurite")
            command = ["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--silent"]
            subprocess.run(command, cwd=scratch, check=True, stdin=subprocess.DEVNULL)
            scratch.rename(folder)
    return folder / "node_modules/azurite/dist/src/blob/main.js"


def sas_token() -> str:
    """Returns a new token of the account, valid for an hour, for all that may be done with its containers and blobs."""
    now = datetime.now(tz=UTC)
    start, expiry = ((now + timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ") for minutes in (-5, 60))
    permissions, version = "rwdlacuptf", "2021-06-08"
    signed = (ACCOUNT, permissions, "b", "sco", start, expiry, "", "https,http", version, "", "")
    digest = hmac.new(base64.b64decode(KEY), "\n".join(signed).encode(), hashlib.sha256).digest()
    fields = {"sv": version, "ss": "b", "srt": "sco", "sp": permissions, "st": start, "se": expiry, "spr": "https,http"}
    return urlencode({**fields, "sig": base64.b64encode(digest).decode()})


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running_azure(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the server with the container CONTAINER, and yields the variables by which a lake in it is found."""
    port = free_port()
    options = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
    with listening(["node", _script(), "--blobPort", str(port), *options], port, folder / "azurite.log"):
        place = f"127.0.0.1:{port}"
        files = AzureFileSystem(
            ACCOUNT,
            account_key=KEY,
            blob_storage_authority=place,
            dfs_storage_authority=place,
            blob_storage_scheme="http",
            dfs_storage_scheme="http",
        )
        files.create_dir(CONTAINER)
        with in_front("tests.store.azure", f"http://{place}") as url:
            yield {
                "AZURE_STORAGE_ENDPOINT": f"{url}/{ACCOUNT}",
                "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
                "AZURE_STORAGE_ACCOUNT_KEY": KEY,
                "PATH": os.environ["PATH"],
            }


def _from_start(request: Request, content: bytes) -> bytes:
    """Takes the blobs whose names come before `startFrom` out of a listing."""
    start = parse_qs(urlparse(request.path).query).get("startFrom", [""])[0]
    if not start:
        return content

    def keep(blob: "re.Match[bytes]") -> bytes:
        return blob[0] if unescape(blob[1].decode()) >= start else b""

    return re.sub(rb"<Blob><Name>(.*?)</Name>.*?</Blob>", keep, content, flags=re.DOTALL)


if __name__ == "__main__":
    with running_proxy(sys.argv[1]) as running:
        running.edit = _from_start
        print(running.url, flush=True)
        threading.Event().wait()
