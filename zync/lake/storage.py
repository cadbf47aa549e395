"""Access to a lake in an object store, alike for delta-rs, Spark and Arrow. Google Cloud Storage and Azure are beside.

The config's `storage` goes before the cloud's usual environment. delta-rs reads the environment itself. Spark's file
system and Arrow's take keys, profiles and web identity from it, and get the rest from here. Keys of the config reach
delta-rs as options of each table and Spark in its Hadoop configuration: never in an environment or a command line.
"""

import os
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from zync.config.storage import Storage
from zync.errors import UsageError
from zync.lake import azure, gcs
from zync.lake.environment import first_variable

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem, S3FileSystem

FENCE = "two writers would overwrite each other's commits, as only the store's conditional put keeps them apart"
"""Why an option is refused by which delta-rs commits in another way."""

_BOUNDS = {"timeout": "30s", "connect_timeout": "5s", "retry_timeout": "20s"}
"""How long delta-rs tries: a request may take 30 s, and is not sent again 20 s after it was sent first. By default it
would try for three minutes."""
_SPARK_BOUNDS = {
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "1",
    "spark.hadoop.fs.s3a.retry.throttle.limit": "5",
    "spark.hadoop.fs.s3a.connection.establish.timeout": "15s",
    "spark.hadoop.fs.s3a.connection.timeout": "15s",
    "spark.hadoop.fs.s3a.connection.request.timeout": "15s",
}
"""How long Spark tries; S3A takes no bound of less than 15 s. `connection.timeout` bounds the silence of a connection,
`request.timeout` all attempts of the AWS SDK at a request that is no upload; S3A repeats either once. So a store that
takes requests and never answers costs 30 s for a request, and 60 s for an upload; and after an upload that failed Spark
deletes what it has written, by a request for the task and one for the job."""
_SPARK_STREAM = "classic"
"""S3A's input stream. The default of Hadoop 3.5, `analytics`, keeps an entry for each object until the process ends
(HADOOP-20058), and waits for a block for 30 s up to twenty times."""
# A rename is a copy there. Without the second one for each file, as nobody reads files before zync's commit.
_COMMITTER = {"spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2"}
SCHEMES = {"s3": ("s3", "s3a"), "gs": gcs.SCHEMES, "azure": azure.SCHEMES}
"""The schemes of the locations in each object store."""
_TRUTHS = ("1", "true", "on", "yes", "y")
"""The values that delta-rs takes for true."""


@dataclass
class _Process:
    """The access to object stores that this process has: one process reads one config.

    Attributes:
        storage: What the config says of it.
        store: The object store that was opened last.
    """

    storage: Storage = Storage()
    store: str = ""


_process = _Process()


def use(storage: Storage) -> None:
    """Sets how this process reaches object stores, for tables that it opens from now on. Reading a config does this.

    Example:
        >>> zync.use_storage(zync.Storage(endpoint="https://store.example", region="eu-central-1"))
    """
    _process.storage, _process.store = storage, ""
    gcs.use(storage)


def buckets_are_in_hosts() -> bool:
    """Returns whether the config says that a URL has the bucket in its host."""
    return _process.storage.path_style is False


def is_s3(location: str) -> bool:
    """Returns whether the location is in S3, or in a store that speaks S3."""
    return location.startswith(("s3://", "s3a://"))


def store(location: str) -> str:
    """Returns the object store of a location, `s3`, `gs` or `azure`; an empty text for one that is in none of these."""
    return next((name for name, schemes in SCHEMES.items() if location.partition("://")[0] in schemes), "")


def resolved(location: str) -> str:
    """Returns a location that names its account: for `az://` it is in the config or the environment."""
    return azure.with_account(location, _process.storage)


def opened_store() -> str:
    """Returns the object store that this process opened last; an empty text if it opened none."""
    return _process.store


def endpoint(store: str) -> str:
    """Returns the endpoint of an object store, `s3`, `gs` or `azure`; an empty text for the cloud's own."""
    own = {"gs": gcs.endpoint, "azure": azure.endpoint}.get(store)
    return own(_process.storage) if own else _endpoint()


def delta_options(location: str) -> dict[str, str] | None:
    """Returns delta-rs's options for a table; None for one that is in no object store.

    Raises:
        UsageError: The environment has delta-rs commit without a conditional put, or mixes keys.
    """
    if not (name := store(location)):
        return None
    storage, _process.store = _process.storage, name
    if name == "gs":
        return {**_BOUNDS, **gcs.delta_options(storage), **storage.options}
    if name == "azure":
        return {**_BOUNDS, **azure.delta_options(location, storage), **storage.options}
    _check_environment()
    url = _endpoint()
    options = dict(_BOUNDS)
    if url and not storage.access_key_id:  # delta-rs would look for keys alone, not for a profile or a role
        options["aws_force_credential_load"] = os.environ.get("AWS_FORCE_CREDENTIAL_LOAD", "true")
    if url.startswith("http://"):
        options["allow_http"] = os.environ.get("AWS_ALLOW_HTTP", "true")
    if buckets_are_in_hosts():  # delta-rs leaves it to its caller to put the bucket into the host
        parts = urlparse(url)
        url = parts._replace(netloc=f"{urlparse(location).netloc}.{parts.netloc}").geturl()
        options["aws_virtual_hosted_style_request"] = "true"
    own = {
        "aws_endpoint_url": url if storage.endpoint else "",
        "aws_region": storage.region,
        "aws_access_key_id": storage.access_key_id,
        "aws_secret_access_key": storage.secret_access_key,
        "aws_session_token": storage.session_token,
    }
    return {**options, **{key: value for key, value in own.items() if value}, **storage.options}


def _check_environment() -> None:
    """Raises UsageError for a variable that gives the fence away, or that would be mixed with the config's keys."""
    for name, value in os.environ.items():
        option = name.lower().removeprefix("aws_").removeprefix("s3_")
        if not value or not (
            (option == "allow_unsafe_rename" and value.lower() in _TRUTHS)
            or (option == "conditional_put" and value != "etag")
            or option in ("copy_if_not_exists", "locking_provider")
        ):
            continue
        msg = f"{name} is set: {FENCE}. Unset it"
        raise UsageError(msg)
    storage = _process.storage
    if storage.access_key_id and not storage.session_token and os.environ.get("AWS_SESSION_TOKEN"):
        msg = (
            "AWS_SESSION_TOKEN is set, and is no token of storage.access_key_id in the config, with which it would be "
            "sent: unset it, or say storage.session_token"
        )
        raise UsageError(msg)


def spark_properties(location: str) -> dict[str, str]:
    """Returns the properties by which Spark reads and writes a lake; empty for a local lake.

    Those of `storage`'s keys have names that `zync.spark.session` keeps off the JVM's command line.
    """
    name, storage = store(location), _process.storage
    if name == "gs":
        return {**_COMMITTER, **gcs.spark_properties(storage)}
    if name == "azure":
        return {**_COMMITTER, **azure.spark_properties(location, storage)}
    if not name:
        return {}
    properties = {
        "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
        # S3A would ask before each put whether the file or a folder of that name exists; zync's names are new.
        "spark.hadoop.fs.s3a.performance.flags": "*",
        # S3A's own chain has neither profiles nor web identity; the SDK's has what delta-rs and Arrow have.
        "spark.hadoop.fs.s3a.aws.credentials.provider": (
            "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"
        ),
        "spark.hadoop.fs.s3a.input.stream.type": _SPARK_STREAM,
        **_SPARK_BOUNDS,
        **_COMMITTER,
    }
    if url := _endpoint():
        properties["spark.hadoop.fs.s3a.endpoint"] = url
        properties["spark.hadoop.fs.s3a.path.style.access"] = "false" if buckets_are_in_hosts() else "true"
    if region := _region():
        properties["spark.hadoop.fs.s3a.endpoint.region"] = region
    if storage.access_key_id:
        provider = "TemporaryAWSCredentialsProvider" if storage.session_token else "SimpleAWSCredentialsProvider"
        properties["spark.hadoop.fs.s3a.aws.credentials.provider"] = f"org.apache.hadoop.fs.s3a.{provider}"
        properties["spark.hadoop.fs.s3a.access.key"] = storage.access_key_id
        properties["spark.hadoop.fs.s3a.secret.key"] = storage.secret_access_key
    if storage.session_token:
        properties["spark.hadoop.fs.s3a.session.token"] = storage.session_token
    return properties


def session_properties(location: str) -> dict[str, str]:
    """Returns the properties of a session in an application that was started by others; empty without `storage`.

    Such an application has its own access to stores, and gets only what the config says.
    """
    if _process.storage == Storage():
        return {}
    return {name.removeprefix("spark.hadoop."): value for name, value in spark_properties(location).items()}


def boto_options() -> dict[str, str]:
    """Returns boto3's options for other services of AWS: the region, and the keys unless they are of another store."""
    storage = _process.storage
    keys = {
        "aws_access_key_id": storage.access_key_id,
        "aws_secret_access_key": storage.secret_access_key,
        "aws_session_token": storage.session_token,
    }
    options = {"region_name": _region(), **({} if storage.endpoint else keys)}
    return {key: value for key, value in options.items() if value}


def iceberg_properties() -> dict[str, str]:
    """Returns pyiceberg's properties for a lake in S3."""
    storage = _process.storage
    properties = {
        "s3.endpoint": _endpoint(),
        "s3.region": _region(),
        "s3.resolve-region": "false" if _region() else "",
        "s3.access-key-id": storage.access_key_id,
        "s3.secret-access-key": storage.secret_access_key,
        "s3.session-token": storage.session_token,
        "s3.force-virtual-addressing": "true" if buckets_are_in_hosts() else "false",
    }
    return {key: value for key, value in properties.items() if value}


def arrow_files(location: str) -> "FileSystem":
    """Opens a folder of an object store as a file system."""
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - takes 0.1 s, and each config is read with this module
    from pyarrow.fs import PyFileSystem, SubTreeFileSystem  # noqa: PLC0415

    storage = _process.storage
    if store(location) == "gs":
        return gcs.arrow_files(location, storage)
    if store(location) == "azure":
        return azure.arrow_files(location, storage)
    if not is_s3(location):
        return PyFileSystem(DeltaStorageHandler(location))
    client = _arrow_s3(
        _endpoint(),
        _region(),
        (storage.access_key_id, storage.secret_access_key, storage.session_token),
        virtual=buckets_are_in_hosts(),
    )
    return SubTreeFileSystem(location.partition("://")[2], client)


@cache
def _arrow_s3(endpoint: str, region: str, keys: tuple[str, str, str], *, virtual: bool) -> "S3FileSystem":
    """Returns Arrow's client of S3, which keeps its connections.

    With a file system in Python instead, Arrow's threads may abort a process that ends.
    """
    from pyarrow.fs import S3FileSystem  # noqa: PLC0415

    url, (access_key, secret_key, session_token) = urlparse(endpoint), keys
    return S3FileSystem(
        access_key=access_key or None,
        secret_key=secret_key or None,
        session_token=session_token or None,
        region=region or None,
        allow_delayed_open=True,  # a small file is put by one request instead of three
        endpoint_override=url.netloc or None,
        scheme=url.scheme or None,
        force_virtual_addressing=virtual,
    )


def _endpoint() -> str:
    return _process.storage.endpoint or first_variable("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")


def _region() -> str:
    return _process.storage.region or first_variable("AWS_REGION", "AWS_DEFAULT_REGION")
