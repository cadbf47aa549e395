"""A server that speaks Azure's Blob API: Azurite, fetched from npm once, by a lock file with hashes."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyarrow.fs import AzureFileSystem

from zync import java

_PACKAGE = Path(__file__).parent / "azurite"
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The account that Azurite has by itself, and the key that its documentation gives it."""
CONTAINER = "lake"


def _script() -> Path:
    """Returns the path of the server's script, and fetches it the first time, in half a minute."""
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


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running_azure(folder: Path) -> Iterator[dict[str, str]]:
    """Runs the server with the container CONTAINER, and yields the variables by which a lake in it is found."""
    port = _free_port()
    options = [
        "--blobPort",
        str(port),
        "--inMemoryPersistence",
        "--silent",
        "--disableTelemetry",
        "--skipApiVersionCheck",
    ]
    with (folder / "azurite.log").open("w") as log:
        server = subprocess.Popen(["node", _script(), *options], stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while True:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert server.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
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
        yield {
            "AZURE_STORAGE_ENDPOINT": f"http://{place}/{ACCOUNT}",
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "PATH": os.environ["PATH"],
        }
    finally:
        server.kill()
        server.wait()
