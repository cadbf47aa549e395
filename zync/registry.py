"""A schema registry, asked in the way that Confluent's, Karapace and Apicurio answer: schemas by their id.

See https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

import base64
import http.client
import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from zync.config import RegistryAccess
from zync.errors import ZyncError

_NOT_FOUND = (40401, 40402, 40403)
"""The registry's codes for a subject, version or schema that it does not have."""


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
        self._known: dict[int, Schema] = {}
        context = None
        if access.url.startswith("https:"):
            context = ssl.create_default_context(cafile=access.ca and str(access.ca))
            if access.certificate:
                context.load_cert_chain(access.certificate, access.certificate_key)
        self._context = context

    def schema(self, number: int) -> Schema | None:
        """The schema of that id; None where the registry has none. ZyncError where it does not answer."""
        if number not in self._known:
            found = self._ask(f"schemas/ids/{number}")
            if found is None:
                return None
            references: dict[tuple[str, str, int], str] = {}
            self._refer(found, references)
            named = tuple((name, text) for (name, _, _), text in references.items())
            schema = Schema(found.get("schemaType") or "AVRO", str(found["schema"]), named)
            self._known[number] = schema
        return self._known[number]

    def _refer(self, schema: dict[str, Any], into: dict[tuple[str, str, int], str]) -> None:
        """Puts the texts of what a schema refers to into `into`, each after what it needs itself."""
        for one in schema.get("references") or ():
            name, subject, version = str(one["name"]), str(one["subject"]), int(one["version"])
            if (name, subject, version) in into:
                continue
            found = self._ask(f"subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}")
            if found is None:
                msg = f"the schema registry at {self._access.url} has no version {version} of {subject!r}"
                raise ZyncError(msg)
            self._refer(found, into)
            into[name, subject, version] = str(found["schema"])

    def _ask(self, path: str) -> dict[str, Any] | None:
        """The answer to a GET; None where it is that there is no such schema."""
        access = self._access
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        request = urllib.request.Request(f"{access.url.rstrip('/')}/{path}", headers=headers)  # noqa: S310 - http(s), as the config's check says
        if access.basic_auth:  # which is for this host, not for where it may send us
            said = base64.b64encode(access.basic_auth.encode()).decode()
            request.add_unredirected_header("Authorization", f"Basic {said}")
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=access.timeout.total_seconds(), context=self._context
            ) as response:
                found = dict(json.load(response))
        except urllib.error.HTTPError as error:
            code = _code(error)
            if code in _NOT_FOUND:
                return None
            msg = f"the schema registry at {access.url} answers {error.code} {error.reason} to {path}"
            raise ZyncError(msg) from error
        except (OSError, ValueError, TypeError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            msg = f"the schema registry at {access.url} does not answer ({why}): nothing was changed; try again"
            raise ZyncError(msg) from error
        if "schema" not in found:
            msg = f"what answers at {access.url} is not a schema registry: {path} has no 'schema'"
            raise ZyncError(msg)
        return found


@lru_cache
def registry(access: RegistryAccess) -> Registry:
    """The registry there: one for each access in a process, so that what it answered is kept between syncs."""
    return Registry(access)


def _code(error: urllib.error.HTTPError) -> int | None:
    try:
        return int(json.load(error).get("error_code"))
    except (ValueError, TypeError, AttributeError, OSError):
        return None
