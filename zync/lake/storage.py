"""Access to a lake in an object store, by the cloud's usual environment, alike for delta-rs, Spark and Arrow.

delta-rs reads the environment itself. Spark's file system and Arrow's take keys, profiles and web identity from it, and
get the endpoint and the region from here.
"""

import os
from functools import cache
from urllib.parse import urlparse

from deltalake.fs import DeltaStorageHandler
from pyarrow.fs import FileSystem, PyFileSystem, S3FileSystem, SubTreeFileSystem

from zync.errors import UsageError

_UNSAFE = ("AWS_S3_ALLOW_UNSAFE_RENAME", "AWS_ALLOW_UNSAFE_RENAME")
"""Variables by which delta-rs writes its log without a conditional put, so that two writers overwrite each other."""


def is_s3(location: str) -> bool:
    """Returns whether the location is in S3, or in a store that speaks S3."""
    return location.startswith(("s3://", "s3a://"))


def prepare(location: str) -> None:
    """Completes this process's environment for a lake, before delta-rs reads it.

    Raises:
        UsageError: The environment allows delta-rs to write without a conditional put.
    """
    if not is_s3(location):
        return
    if unsafe := next((name for name in _UNSAFE if os.environ.get(name, "").lower() in ("true", "1")), None):
        msg = f"{unsafe} is set: with it two writers overwrite each other's commits, and rows are lost. Unset it"
        raise UsageError(msg)
    if _endpoint():  # delta-rs would look for keys alone, not for a profile or a role
        os.environ.setdefault("AWS_FORCE_CREDENTIAL_LOAD", "true")
    if _endpoint().startswith("http://"):
        os.environ.setdefault("AWS_ALLOW_HTTP", "true")


def spark_properties(location: str) -> dict[str, str]:
    """Returns the properties by which Spark reads and writes a lake; empty for a local lake."""
    if not is_s3(location):
        return {}
    properties = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        # S3A would ask before each put whether the file or a folder of that name exists; zync's names are new.
        "spark.hadoop.fs.s3a.performance.flags": "*",
        # A rename is a copy there. Without the second one for each file, as nobody reads files before zync's commit.
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        # S3A's own chain has neither profiles nor web identity; the SDK's has what delta-rs and Arrow have.
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
    }
    if endpoint := _endpoint():
        properties["spark.hadoop.fs.s3a.endpoint"] = endpoint
        properties["spark.hadoop.fs.s3a.path.style.access"] = "true"
    if region := _region():
        properties["spark.hadoop.fs.s3a.endpoint.region"] = region
    return properties


def arrow_files(location: str) -> FileSystem:
    """Opens a folder of an object store as a file system."""
    if not is_s3(location):
        return PyFileSystem(DeltaStorageHandler(location))
    return SubTreeFileSystem(location.partition("://")[2], _arrow_s3(_endpoint(), _region()))


@cache
def _arrow_s3(endpoint: str, region: str) -> S3FileSystem:
    """Returns Arrow's client of S3, which keeps its connections.

    With a file system in Python instead, Arrow's threads may abort a process that ends.
    """
    url = urlparse(endpoint)
    return S3FileSystem(region=region or None, endpoint_override=url.netloc or None, scheme=url.scheme or None)


def _endpoint() -> str:
    names = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
    return next((os.environ[name] for name in names if os.environ.get(name)), "")


def _region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
