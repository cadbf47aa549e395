"""A schema registry, asked in the way that Confluent's, Karapace and Apicurio answer: schemas by their id.

See https://docs.confluent.io/platform/current/schema-registry/develop/api.html
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
"""The registry's codes for a subject, version or schema that it does not have."""
_GUIDS = "schemas/guids/"
_NO_PATH = 404
"""What HTTP calls a path that the registry does not have: only Confluent's, since 8.0, has one for GUIDs."""
_REFUSED = (400, 409, 422)
"""What HTTP calls a schema that does not go with those before it, or is none."""
_OVERLOADED = (429, 502, 503, 504)
"""HTTP answers of a registry, or of a proxy before it, that may be another one a moment later."""
_RETRY_AFTER = (0.1, 0.3, 0.9)
"""Seconds to wait before each further attempt. All attempts together take no longer than the config's timeout."""


class SchemaRefusedError(ZyncError):
    """The schema registry does not accept a request, and says why.

    A schema that it does not accept is no valid schema, or not compatible with the versions before it: change the
    rule's columns, or the compatibility that the registry asks for.
    """

    code = "ZYNC-REGISTRY-REFUSED"


class RegistryAwayError(ZyncError):
    """The schema registry does not answer, or is overloaded, and still is after several attempts.

    Run the command again once it is back: nothing was changed.
    """

    code = "ZYNC-REGISTRY-AWAY"


@dataclass(frozen=True)
class Schema:
    """A schema as the registry has it. `kind`: AVRO, JSON or PROTOBUF.

    references: what it needs, in that order, each by the name that it is referred to.
    """

    kind: str
    text: str
    references: tuple[tuple[str, str], ...] = ()


class Registry:
    """Schemas by id. An id's schema never changes, so each is asked for once; what is not known yet, each time."""

    def __init__(self, access: RegistryAccess) -> None:
        self._access = access
        self._known: dict[int | str, Schema] = {}
        self._context = _tls(access) if access.url.startswith("https:") else None

    def schema(self, number: int | str) -> Schema | None:
        """The schema of that id, or GUID; None where the registry has none, or knows no GUIDs.

        UsageError where it refers to one that the registry does not have any more; ZyncError where no answer comes.
        """
        if number not in self._known:
            found = self._ask(f"schemas/ids/{number}" if isinstance(number, int) else f"{_GUIDS}{number}")
            if found is None:
                return None
            self._known[number] = self._complete(found)
        return self._known[number]

    def _complete(self, found: dict[str, Any]) -> Schema:
        """A schema as it was found, with what it refers to."""
        references: dict[tuple[str, str, int], str] = {}
        self._refer(found, references)
        named = tuple((name, text) for (name, _, _), text in references.items())
        return Schema(found.get("schemaType") or "AVRO", str(found["schema"]), named)

    def _refer(self, schema: dict[str, Any], into: dict[tuple[str, str, int], str]) -> None:
        """Puts the texts of what a schema refers to into `into`, each after what it needs itself."""
        for one in schema.get("references") or ():
            name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            if (name, subject, version) in into:
                continue
            found = self._ask(f"{_of_subject(subject)}/{version}?deleted=true")  # which readers may need all the same
            if found is None:
                msg = f"it refers to version {version} of {subject!r}, which the registry does not have any more"
                raise UsageError(msg)
            self._refer(found, into)
            into[name, subject, version] = str(found["schema"])

    def _version(self, subject: str, version: int) -> dict[str, Any]:
        found = self._ask(f"{_of_subject(subject)}/{version}")
        if found is None:
            msg = f"the schema registry at {self._access.url} has no version {version} of {subject!r}"
            raise ZyncError(msg)
        return found

    def versions(self, subject: str) -> list[Schema]:
        """All schemas of a subject, the oldest first; none where there is no such subject."""
        numbers = self._call(_of_subject(subject)) or []
        return [self._complete(self._version(subject, int(number))) for number in numbers]

    def register(self, subject: str, kind: str, text: str) -> int:
        """The id of a schema, which is a version of the subject when this returns.

        UsageError where the registry does not take it, as when readers of what was there before could not go on.
        """
        try:
            found = self._call(_of_subject(subject), {"schema": text, "schemaType": kind})
        except SchemaRefusedError as error:
            msg = f"the schema registry at {self._access.url} does not take the schema of {subject}: {error}"
            raise UsageError(msg) from error
        if not isinstance(found, dict) or not isinstance(found.get("id"), int):
            msg = f"what answers at {self._access.url} is not a schema registry: it gives no id for {subject}"
            raise ZyncError(msg)
        return int(found["id"])

    def _ask(self, path: str) -> dict[str, Any] | None:
        """What there is of a schema; None where the answer is that there is no such one."""
        found = self._call(path)
        if found is None or (isinstance(found, dict) and "schema" in found):
            return found
        msg = f"what answers at {self._access.url} is not a schema registry: {path} has no 'schema'"
        raise ZyncError(msg)

    def _call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """Returns the answer to a GET, or to a POST of `body`; None where it is that there is no such thing.

        Asks again where a connection was reset or the registry is overloaded. (To register a schema twice is to
        register it once.)
        """
        until = time.monotonic() + self._access.timeout.total_seconds()
        for pause in _RETRY_AFTER:
            try:
                return self._attempt(path, body, until - time.monotonic())
            except RegistryAwayError:
                if time.monotonic() + pause >= until:
                    raise
            time.sleep(pause)
        return self._attempt(path, body, until - time.monotonic())

    def _attempt(self, path: str, body: dict[str, Any] | None, seconds: float) -> Any:
        """One attempt at `_call`, in at most so many seconds."""
        access = self._access
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if body is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        request = urllib.request.Request(  # noqa: S310 - http(s), as the config's check says
            f"{access.url.rstrip('/')}/{path}", None if body is None else json.dumps(body).encode(), headers
        )
        if access.basic_auth:  # which is for this host, not for where it may send us
            said = base64.b64encode(access.basic_auth.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {said}")
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=max(seconds, 0.001), context=self._context
            ) as response:
                answer = _read(response, seconds)
            try:
                return json.loads(answer)
            except ValueError as error:
                msg = f"what answers at {access.url} is not a schema registry: {path} is no JSON"
                raise ZyncError(msg) from error
        except urllib.error.HTTPError as error:
            code, said = _said(error, seconds)
            if code in _NOT_FOUND or (error.code == _NO_PATH and path.startswith(_GUIDS)):
                return None
            if error.code in _REFUSED:
                raise SchemaRefusedError(said or error.reason) from error
            msg = f"the schema registry at {access.url} answers {error.code} {error.reason} to {path}"
            raise (RegistryAwayError if error.code in _OVERLOADED else ZyncError)(msg) from error
        except (OSError, ValueError, TypeError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            msg = f"the schema registry at {access.url} does not answer ({why}): nothing was changed; try again"
            raise RegistryAwayError(msg) from error


@lru_cache
def registry(access: RegistryAccess) -> Registry:
    """The registry there: one for each access in a process, so that what it answered is kept between syncs."""
    return Registry(access)


def _tls(access: RegistryAccess) -> ssl.SSLContext:
    """How to talk TLS to it. UsageError where the config's files are not what they should be."""
    what = f"ca {access.ca}"
    try:
        context = ssl.create_default_context(cafile=access.ca and str(access.ca))
        if access.certificate:
            what = f"certificate {access.certificate} with certificate_key {access.certificate_key or 'in it'}"
            context.load_cert_chain(access.certificate, access.certificate_key)
    except OSError as error:
        msg = f"the registry's {what} cannot be used: {error.strerror or error}: give PEM files that belong together"
        raise UsageError(msg) from error
    return context


def _read(response: http.client.HTTPResponse | urllib.error.HTTPError, seconds: float) -> bytes:
    """All of the answer; TimeoutError if it takes longer: the socket's own limit is for each piece of it."""
    until, pieces = time.monotonic() + seconds, list[bytes]()
    while piece := response.read1():
        pieces.append(piece)
        if time.monotonic() > until:
            msg = f"not all of the answer came within {round(seconds, 1):g} s"
            raise TimeoutError(msg)
    return b"".join(pieces)


def _of_subject(subject: str) -> str:
    return f"subjects/{urllib.parse.quote(subject, safe='')}/versions"


def _said(error: urllib.error.HTTPError, seconds: float) -> tuple[int | None, str]:
    """The registry's own code and message, as far as it has any."""
    try:
        found = json.loads(_read(error, seconds))
        return int(found.get("error_code")), str(found.get("message") or "")
    except (ValueError, TypeError, AttributeError, OSError):
        return None, ""
