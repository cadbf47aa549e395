"""A small object in an object store, written only on a condition: that it is absent, or still as it was read.

The client is obstore, over the object_store crate that delta-rs has, too, by delta-rs's options.
"""

import configparser
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zync.errors import ZyncError
from zync.lake import storage
from zync.lake.environment import first_variable
from zync.lake.table import first_line

if TYPE_CHECKING:
    from obstore import UpdateVersion
    from obstore.store import ObjectStore

_CLOUDS = ("aws_", "google_", "azure_")
"""What delta-rs's options for a store begin with; those for the HTTP client have no prefix."""
_OF_DELTA_RS = frozenset(
    {"aws_ec2_metadata_disabled", "aws_force_credential_load", "aws_iam_role_arn", "aws_iam_role_session_name"}
)
"""Options that delta-rs has and object_store has not."""
_RETRY = ("backoff_config.", "max_retries", "retry_timeout")
"""What the names of options begin with that say how often to try again, for which `_RETRIES` stands here."""
_BOUNDS = {"timeout": "5s", "connect_timeout": "3s"}
_RETRIES: Any = {"max_retries": 2, "retry_timeout": timedelta(seconds=5)}
"""A request takes some ten seconds at most, as the end of a process may wait for it."""


class ChangedError(Exception):
    """The object is not as it was read: another process wrote it, or an earlier request of this process landed."""


class StoredObject:
    """An object in a folder of an object store. All methods raise ZyncError if the store refuses or does not answer.

    Args:
        folder: The folder's URI.
        name: The object's name in it.
    """

    def __init__(self, folder: str, name: str) -> None:
        self.uri, self._name = f"{folder}/{name}", name
        self._store = _open(folder)

    def read(self) -> "tuple[bytes, UpdateVersion] | None":
        """Returns the content and the version; None if there is no object."""
        with self._errors():
            try:
                answer = self._store.get(self._name)
            except FileNotFoundError:
                return None
            return bytes(answer.bytes()), _version(answer.meta)

    def create(self, content: bytes) -> "UpdateVersion":
        """Creates the object and returns its version. Raises ChangedError if it exists."""
        with self._errors():
            return _version(self._store.put(self._name, content, mode="create", use_multipart=False))

    def replace(self, content: bytes, version: "UpdateVersion") -> "UpdateVersion":
        """Replaces the object and returns its new version. Raises ChangedError if it has another version by now."""
        with self._errors():
            return _version(self._store.put(self._name, content, mode=version, use_multipart=False))

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raises obstore's errors in the context as zync's."""
        from obstore.exceptions import (  # noqa: PLC0415 - for stores only
            AlreadyExistsError,
            BaseError,
            PreconditionError,
        )

        try:
            yield
        except (AlreadyExistsError, PreconditionError) as error:
            msg = f"{self.uri} was written meanwhile"
            raise ChangedError(msg) from error
        except (BaseError, OSError, ValueError) as error:
            raise _as_zync(self.uri, error) from error


def _as_zync(uri: str, error: Exception) -> ZyncError:
    return ZyncError(f"{uri}: {first_line(error)}")


def _version(result: Any) -> "UpdateVersion":
    """Returns what a later `replace` compares: the ETag, and in Google Cloud Storage the generation."""
    version: UpdateVersion = {}
    if result.get("e_tag"):
        version["e_tag"] = result["e_tag"]
    if result.get("version"):
        version["version"] = result["version"]
    return version


def _open(folder: str) -> "ObjectStore":
    """Opens a folder by the options that delta-rs gets, with shorter bounds.

    delta-rs has AWS's chain of credentials, which knows profiles; object_store's own does not.
    """
    from obstore.exceptions import BaseError  # noqa: PLC0415 - for stores only
    from obstore.store import from_url  # noqa: PLC0415

    options = storage.delta_options(folder) or {}
    config = {key: value for key, value in options.items() if key.startswith(_CLOUDS) and key not in _OF_DELTA_RS}
    client = {key: value for key, value in options.items() if not key.startswith((*_CLOUDS, *_RETRY))} | _BOUNDS
    if storage.is_s3(folder) and not _has_keys(config):
        config |= _profile_keys()
    anything: Any = from_url  # its overloads want a literal scheme's config
    try:
        store: ObjectStore = anything(
            folder.replace("s3a://", "s3://", 1), config=config, client_options=client, retry_config=_RETRIES
        )
    except (BaseError, OSError, ValueError) as error:
        raise _as_zync(folder, error) from error
    return store


def _has_keys(config: dict[str, str]) -> bool:
    return "aws_access_key_id" in config or bool(os.environ.get("AWS_ACCESS_KEY_ID"))


def _profile_keys() -> dict[str, str]:
    """Returns the keys and the region that the AWS profile of the environment has in its files; empty without."""
    home, profile = Path("~/.aws").expanduser(), os.environ.get("AWS_PROFILE") or "default"
    files = configparser.RawConfigParser()
    files.read(
        (
            os.environ.get("AWS_CONFIG_FILE") or home / "config",
            os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials",
        )
    )
    keys: dict[str, str] = {}
    for section in (f"profile {profile}", profile):
        for name in ("aws_access_key_id", "aws_secret_access_key", "aws_session_token", "region"):
            if value := files.get(section, name, fallback=""):
                keys[name if name.startswith("aws_") else "aws_region"] = value
    if first_variable("AWS_REGION", "AWS_DEFAULT_REGION"):
        keys.pop("aws_region", None)
    return keys if "aws_access_key_id" in keys else {}
