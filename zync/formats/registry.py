"""A client of a schema registry, by the API that Confluent's registry, Karapace and Apicurio share.

See https://docs.confluent.io/platform/current/schema-registry/develop/api.html

The transport is urllib, not `confluent_kafka.schema_registry`, which cannot do three things that zync promises
(measured with confluent-kafka 2.16.1):

- Its `timeout` is for each read of each attempt. With 2 s a silent registry took 11 s, and one that sends a byte now
  and then had no end. Here all attempts together have the config's `timeout`.
- It follows no redirect, and trusts certifi's certificates instead of the system's.
- It needs 13 more packages (28 MB), and 0.6 s to import.

Which HTTP statuses are tried again is as there.
"""

import base64
import http.client
import json
import ssl
import time
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from zync.config.model import RegistryAccess
from zync.errors import UsageError, ZyncError

_NOT_FOUND = (40401, 40402, 40403)
"""The registry's error codes for an unknown subject, version or schema."""
_GUIDS = "schemas/guids/"
_NO_PATH = 404
"""The HTTP status of an unknown path. Only Confluent's registry, since 8.0, has the path for GUIDs."""
_REFUSED = (400, 409, 422)
"""HTTP statuses for a schema that is invalid, or not compatible with earlier versions."""
_TRANSIENT = (408, 429, 500, 502, 503, 504)
"""HTTP statuses after which another attempt may succeed, as in Confluent's clients: the registry is overloaded, elects
a leader (500, with its error 50003), or a proxy before it does not reach it."""
_RETRY_AFTER = (0.1, 0.3, 0.9)
"""Seconds to wait before each further attempt. All attempts together take no longer than the config's timeout."""


class SchemaRefusedError(ZyncError):
    """The schema registry does not accept a request, and says why.

    A schema that it does not accept is no valid schema, or not compatible with the versions before it: change the
    rule's columns, or the compatibility that the registry asks for.
    """

    code = "ZYNC-REGISTRY-REFUSED"


class RegistryAwayError(ZyncError):
    """The schema registry does not answer, fails or is overloaded, and still does after several attempts.

    Run the command again once it is back: nothing was changed.
    """

    code = "ZYNC-REGISTRY-AWAY"


@dataclass(frozen=True)
class Schema:
    """A schema of the registry.

    Attributes:
        kind: AVRO, JSON or PROTOBUF.
        text: the schema's text.
        references: (name, text) of the schemas that it refers to, each after those that it needs itself.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Registry:
    """A schema registry. An id's schema never changes, so it is fetched once; an unknown id is looked up each time."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._schemas: dict[int | str, Schema] = {}
        self._context = _tls(access) if access.url.startswith("https:") else None

    def schema(self, number: int | str) -> Schema | None:
        """Returns the schema of an id or GUID; None where the registry does not have it, or has no GUIDs.

        Raises:
            UsageError: the schema refers to a schema that the registry does not have any more.
            ZyncError: the registry does not answer.
        """
        if number not in self._schemas:
            answer = self._fetch(f"schemas/ids/{number}" if isinstance(number, int) else f"{_GUIDS}{number}")
            if answer is None:
                return None
            self._schemas[number] = self._with_references(answer)
        return self._schemas[number]

    def _with_references(self, answer: dict[str, Any]) -> Schema:
        """Returns the schema of the registry's answer, and the schemas that it refers to."""
        texts: dict[tuple[str, str, int], str] = {}
        self._add_references(answer, texts)
        references = tuple((name, text) for (name, _, _), text in texts.items())
        return Schema(answer.get("schemaType") or "AVRO", str(answer["schema"]), references)

    def _add_references(self, schema: dict[str, Any], texts: dict[tuple[str, str, int], str]) -> None:
        """Adds the schemas that `schema` refers to to `texts`, each after those that it needs itself."""
        for reference in schema.get("references") or ():
            name, subject, version = str(reference["name"]), str(reference["subject"]), int(reference["version"])
            if (name, subject, version) in texts:
                continue
            answer = self._fetch(f"{_versions_path(subject)}/{version}?deleted=true")  # old values may still need it
            if answer is None:
                msg = f"it refers to version {version} of {subject!r}, which the registry does not have any more"
                raise UsageError(msg)
            self._add_references(answer, texts)
            texts[name, subject, version] = str(answer["schema"])

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        answer = self._fetch(f"{_versions_path(subject)}/{version}")
        if answer is None:
            msg = f"the schema registry at {self._access.url} has no version {version} of {subject!r}"
            raise ZyncError(msg)
        return answer

    def versions(self, subject: str) -> list[Schema]:
        """Returns all schemas of a subject, the oldest first; an empty list for an unknown subject."""
        numbers = self._call(_versions_path(subject)) or []
        return [self._with_references(self._version(subject, int(number))) for number in numbers]

    def register(self, subject: str, kind: str, text: str) -> int:
        """Registers a schema as a version of the subject, and returns its id.

        Raises:
            UsageError: the registry refuses the schema, for example as incompatible with earlier versions.
        """
        try:
            answer = self._call(_versions_path(subject), {"schema": text, "schemaType": kind})
        except SchemaRefusedError as error:
            msg = f"the schema registry at {self._access.url} does not take the schema of {subject}: {error}"
            raise UsageError(msg) from error
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), int):
            msg = f"what answers at {self._access.url} is not a schema registry: it gives no id for {subject}"
            raise ZyncError(msg)
        return int(answer["id"])

    def _fetch(self, path: str) -> dict[str, Any] | None:
        """Returns the registry's answer with a schema; None where it has no such schema."""
        answer = self._call(path)
        if answer is None or (isinstance(answer, dict) and "schema" in answer):
            return answer
        msg = f"what answers at {self._access.url} is not a schema registry: {path} has no 'schema'"
        raise ZyncError(msg)

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Returns the answer to a GET, or to a POST of `body`; None where the registry has no such thing.

        Tries again where a connection was reset, and after the statuses of `_TRANSIENT`. Registering a schema is
        idempotent.
        """
        deadline = time.monotonic() + self._access.timeout.total_seconds()
        for pause in _RETRY_AFTER:
            try:
                return self._attempt(path, body, deadline)
            except RegistryAwayError:
                if time.monotonic() + pause >= deadline:
                    raise
            time.sleep(pause)
        return self._attempt(path, body, deadline)

    def _attempt(self, path: str, body: dict[str, Any] | None, deadline: float) -> Any:
        """Makes a single attempt at `_call`, which ends by that time (of `time.monotonic`)."""
        access, seconds = self._access, max(deadline - time.monotonic(), 0.001)
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        request = urllib.request.Request(  # noqa: S310 - http(s), as the config's check says
            f"{access.url.rstrip('/')}/{path}", None if body is None else json.dumps(body).encode(), headers
        )
        if access.basic_auth:  # only for this host, not for redirects to others
            credentials = base64.b64encode(access.basic_auth.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {credentials}")
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=seconds, context=self._context
            ) as response:
                answer = self._read(response, deadline)
            try:
                return json.loads(answer)
            except ValueError as error:
                msg = f"what answers at {access.url} is not a schema registry: {path} is no JSON"
                raise ZyncError(msg) from error
        except urllib.error.HTTPError as error:
            code, message = self._error_of(error, deadline)
            if code in _NOT_FOUND or (error.code == _NO_PATH and path.startswith(_GUIDS)):
                return None
            if error.code in _REFUSED:
                raise SchemaRefusedError(message or error.reason) from error
            msg = f"the schema registry at {access.url} answers {error.code} {error.reason} to {path}"
            raise (RegistryAwayError if error.code in _TRANSIENT else ZyncError)(msg) from error
        except (OSError, ValueError, TypeError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            msg = f"the schema registry at {access.url} does not answer ({reason}): nothing was changed; try again"
            raise RegistryAwayError(msg) from error

    def _read(self, response: http.client.HTTPResponse | urllib.error.HTTPError, deadline: float) -> bytes:
        """Reads the whole answer.

        Raises:
            TimeoutError: it takes longer than until the deadline (of `time.monotonic`).
            http.client.IncompleteRead: the connection ends before the answer, which `read1` does not tell.
        """
        pieces = list[bytes]()
        try:
            while _limit(response, deadline) and (piece := response.read1()):
                pieces.append(piece)
        except TimeoutError as error:
            msg = f"not all of the answer came within {self._access.timeout.total_seconds():g} s"
            raise TimeoutError(msg) from error
        answer = b"".join(pieces)
        if response.length:  # the bytes that are left of Content-Length
            raise http.client.IncompleteRead(answer, response.length)
        return answer

    def _error_of(self, error: urllib.error.HTTPError, deadline: float) -> tuple[int | None, str]:
        """Returns the registry's own error code and message; None and "" where it sends none."""
        try:
            answer = json.loads(self._read(error, deadline))
            return int(answer.get("error_code")), str(answer.get("message") or "")
        except (ValueError, TypeError, AttributeError, OSError, http.client.HTTPException):
            return None, ""


@lru_cache
def registry(access: RegistryAccess) -> Registry:
    """Returns the process's client for `access`; all syncs share it, and the schemas that it has fetched."""
    return Registry(access)


def _tls(access: RegistryAccess) -> ssl.SSLContext:
    """Returns the TLS settings; UsageError where a file of the config cannot be used."""
    setting = f"ca {access.ca}"
    try:
        context = ssl.create_default_context(cafile=access.ca and str(access.ca))
        if access.certificate:
            setting = f"certificate {access.certificate} with certificate_key {access.certificate_key or 'in it'}"
            context.load_cert_chain(access.certificate, access.certificate_key)
    except OSError as error:
        msg = f"the registry's {setting} cannot be used: {error.strerror or error}: give PEM files that belong together"
        raise UsageError(msg) from error
    return context


def _limit(response: http.client.HTTPResponse | urllib.error.HTTPError, deadline: float) -> bool:
    """Lets the next read of an answer take until the deadline, and returns true; TimeoutError if that has passed.

    The timeout of the connection holds for each read anew, and http.client has no way to change it.
    """
    if (seconds := deadline - time.monotonic()) <= 0:
        raise TimeoutError
    answer: Any = response.fp if isinstance(response, urllib.error.HTTPError) else response
    reader = answer.fp
    if reader is not None:  # else all was read
        reader.raw._sock.settimeout(seconds)  # noqa: SLF001
    return True


def _versions_path(subject: str) -> str:
    return f"subjects/{urllib.parse.quote(subject, safe='')}/versions"
