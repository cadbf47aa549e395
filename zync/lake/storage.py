"""Access to a lake in an object store, by the cloud's usual environment, alike for delta-rs, Spark and Arrow.

delta-rs reads the environment itself. Spark's file system and Arrow's take keys, profiles and web identity from it, and
get the endpoint and the region from here.
"""

import os
from collections.abc import Mapping
from urllib.parse import urlparse

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, PyFileSystem, S3FileSystem, SubTreeFileSystem

from zync.errors import UsageError

_S3 = ("s3", "s3a")
_UNSAFE = ("AWS_S3_ALLOW_UNSAFE_RENAME", "AWS_ALLOW_UNSAFE_RENAME")
"""Variables by which delta-rs writes its log without a conditional put, so that two writers overwrite each other."""


def scheme(location: str) -> str:
    """Returns the scheme of a table's location; an empty text for a local path."""
    return urlparse(location).scheme if "://" in location else ""


def is_s3(location: str) -> bool:
    """Returns whether the location is in S3, or in a store that speaks S3."""
    return scheme(location) in _S3


def prepare(location: str) -> None:
    """Completes this process's environment for a lake, before delta-rs or Spark's JVM reads it.

    Raises:
        UsageError: The environment allows delta-rs to write without a conditional put.
    """
    if not is_s3(location):
        return
    if unsafe := next((name for name in _UNSAFE if os.environ.get(name, "").lower() in ("true", "1")), None):
        msg = f"{unsafe} is set: with it two writers overwrite each other's commits, and rows are lost. Unset it"
        raise UsageError(msg)
    if _endpoint(os.environ).startswith("http://"):
        os.environ.setdefault("AWS_ALLOW_HTTP", "true")


def spark_properties(location: str) -> dict[str, str]:
    """Returns the properties by which Spark reads and writes a lake; empty for a local lake."""
    if not is_s3(location):
        return {}
    properties = {"spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem"}
    if endpoint := _endpoint(os.environ):
        properties["spark.hadoop.fs.s3a.endpoint"] = endpoint
        properties["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if region := _region(os.environ):
        properties["spark.hadoop.fs.s3a.endpoint.region"] = region
    return properties


def arrow_files(location: str) -> FileSystem:
    """Opens a folder of an object store as a file system."""
    if not is_s3(location):
        return PyFileSystem(DeltaStorageHandler(location))
    # Arrow's own client: with a file system in Python its threads may abort a process that ends.
    endpoint = urlparse(_endpoint(os.environ))
    store = S3FileSystem(
        region=_region(os.environ) or None,
        endpoint_override=endpoint.netloc or None,
        scheme=endpoint.scheme or None,
        allow_bucket_creation=False,
    )
    return SubTreeFileSystem(location.partition("://")[2], store)


def _endpoint(environment: Mapping[str, str]) -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((environment[name] for name in names if environment.get(name)), "")


def _region(environment: Mapping[str, str]) -> str:
    return environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or ""
