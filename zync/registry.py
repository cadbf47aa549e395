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
    """A schema as the registry has it. `kind`: AVRO, JSON or PROTOBUF; Avro's references are written out in `text`."""

    kind: str
    text: str


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
            kind, text = found.get("schemaType") or "AVRO", str(found["schema"])
            if kind == "AVRO" and found.get("references"):
                text = json.dumps(_written_out(json.loads(text), self._referenced(found), set()))
            self._known[number] = Schema(kind, text)
        return self._known[number]

    def _referenced(self, schema: dict[str, Any]) -> dict[str, Any]:
        """What a schema refers to, and what that refers to, by full name."""
        named: dict[str, Any] = {}
        for one in schema.get("references") or ():
            subject = urllib.parse.quote(str(one["subject"]), safe="")
            found = self._ask(f"subjects/{subject}/versions/{int(one['version'])}")
            if found is None:
                msg = f"the schema registry at {self._access.url} has no {one['subject']!r} version {one['version']}"
                raise ZyncError(msg)
            named |= self._referenced(found) | {str(one["name"]): json.loads(found["schema"])}
        return named

    def _ask(self, path: str) -> dict[str, Any] | None:
        """The answer to a GET; None where it is that there is no such schema."""
        access = self._access
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if access.basic_auth:
            headers["Authorization"] = "Basic " + base64.b64encode(access.basic_auth.encode()).decode()
        request = urllib.request.Request(f"{access.url.rstrip('/')}/{path}", headers=headers)  # noqa: S310 - http(s), as the config's check says
        try:
            with urllib.request.urlopen(  # noqa: S310
                request, timeout=access.timeout.total_seconds(), context=self._context
            ) as response:
                return dict(json.load(response))
        except urllib.error.HTTPError as error:
            code = _code(error)
            if code in _NOT_FOUND:
                return None
            msg = f"the schema registry at {access.url} answers {error.code} {error.reason} to {path}"
            raise ZyncError(msg) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            why = getattr(error, "reason", error)
            msg = f"the schema registry at {access.url} does not answer ({why}): nothing was changed; try again"
            raise ZyncError(msg) from error


@lru_cache
def registry(access: RegistryAccess) -> Registry:
    """The registry there: one for each access in a process, so that what it answered is kept between syncs."""
    return Registry(access)


def _code(error: urllib.error.HTTPError) -> int | None:
    try:
        return int(json.load(error).get("error_code"))
    except (ValueError, TypeError, AttributeError):
        return None


def _written_out(schema: Any, named: dict[str, Any], seen: set[str], namespace: str = "") -> Any:
    """An Avro schema with each name of `named` replaced by what it means, where it first comes."""
    if isinstance(schema, list):
        return [_written_out(one, named, seen, namespace) for one in schema]
    if isinstance(schema, dict):
        if schema.get("type") in ("record", "error", "enum", "fixed"):
            own = str(schema.get("namespace") or str(schema["name"]).rpartition(".")[0] or namespace)
            seen.add(f"{own}.{schema['name']}".lstrip(".") if "." not in schema["name"] else schema["name"])
            fields = [{**one, "type": _written_out(one["type"], named, seen, own)} for one in schema.get("fields", [])]
            return {**schema, "fields": fields} if "fields" in schema else schema
        return {
            key: _written_out(one, named, seen, namespace) if key in ("type", "items", "values") else one
            for key, one in schema.items()
        }
    full = next((name for name in (f"{namespace}.{schema}", schema) if name in named and name not in seen), None)
    if full is None:
        return schema
    meant = _written_out(named[full], named, seen, full.rpartition(".")[0])
    seen.add(full)
    return meant
