"""Access to a lake in Google Cloud Storage, alike for delta-rs, Spark and Arrow.

All three find application default credentials: the file that GOOGLE_APPLICATION_CREDENTIALS names, those of gcloud, or
the metadata server's. `storage.credentials_file` is handed to them by that variable, as Arrow has no other way to it.
"""

import json
import os
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from zync.config.storage import Storage

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem, GcsFileSystem

SCHEMES = ("gs",)
_CREDENTIALS = "GOOGLE_APPLICATION_CREDENTIALS"
_EMULATOR = "STORAGE_EMULATOR_HOST"
"""The variable by which Google's clients find an emulator, which wants no credentials."""
_UNSIGNED = "google_skip_signature"
"""delta-rs's option for requests without credentials."""


def use(storage: Storage) -> None:
    """Sets the variable that names the file of credentials, if the config names one. The file's name is no secret."""
    if storage.credentials_file:
        os.environ[_CREDENTIALS] = storage.credentials_file


def delta_options(storage: Storage) -> dict[str, str]:
    """Returns delta-rs's options for a table."""
    options, url = {}, endpoint(storage)
    if url:
        options["google_base_url"] = url
    if url.startswith("http://"):
        options["allow_http"] = "true"
    if _is_unsigned(storage):
        options[_UNSIGNED] = "true"
        # object_store 0.13 does not sign reads then, but wants a token for writes; this file of an emulator has none.
        keys = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
        options["google_service_account_key"] = json.dumps({**keys, "gcs_base_url": url, "disable_oauth": True})
    return options


def spark_properties(storage: Storage) -> dict[str, str]:
    """Returns the properties by which Spark reads and writes a lake there."""
    properties = {
        "spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
        "spark.hadoop.fs.gs.auth.type": "UNAUTHENTICATED" if _is_unsigned(storage) else "APPLICATION_DEFAULT",
        # The connector would ask before each upload whether a folder of that name exists; zync's names are new.
        "spark.hadoop.fs.gs.create.items.conflict.check.enable": "false",
        # A rename would be a request that needs a permission of its own, storage.objects.move.
        "spark.hadoop.fs.gs.operation.move.enable": "false",
        "spark.hadoop.fs.gs.block.size": str(64 * 1024 * 1024),  # Hadoop 3.5 sets 64m, which the connector cannot read
        "spark.hadoop.fs.gs.http.connect-timeout": "5s",
        "spark.hadoop.fs.gs.http.read-timeout": "30s",
        "spark.hadoop.fs.gs.http.max.retry": "3",
    }
    if url := endpoint(storage):
        properties["spark.hadoop.fs.gs.storage.root.url"] = f"{url}/"
    return properties


def arrow_files(location: str, storage: Storage) -> "FileSystem":
    """Opens a folder as a file system."""
    from pyarrow.fs import SubTreeFileSystem  # noqa: PLC0415 - takes 0.1 s, and each config is read with this module

    return SubTreeFileSystem(location.partition("://")[2], _client(endpoint(storage), unsigned=_is_unsigned(storage)))


@cache
def _client(address: str, *, unsigned: bool) -> "GcsFileSystem":
    """Returns Arrow's client, which keeps its connections."""
    from pyarrow.fs import GcsFileSystem  # noqa: PLC0415

    url = urlparse(address)
    return GcsFileSystem(
        anonymous=unsigned,
        scheme=url.scheme or None,
        endpoint_override=url.netloc or None,
        retry_time_limit=timedelta(seconds=20),
    )


def endpoint(storage: Storage) -> str:
    """Returns the endpoint that the config or the environment names; an empty text for the cloud's own."""
    emulator = os.environ.get(_EMULATOR, "")
    if emulator and "://" not in emulator:
        emulator = f"http://{emulator}"
    return (storage.endpoint or emulator).rstrip("/")


def _is_unsigned(storage: Storage) -> bool:
    if _UNSIGNED in storage.options:
        return storage.options[_UNSIGNED].lower() == "true"
    return bool(not storage.endpoint and os.environ.get(_EMULATOR))
