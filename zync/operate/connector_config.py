"""Reads a connector's config from Kafka Connect's REST API, or from a file in a format that Connect takes."""

import json
import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from zync.errors import UsageError, ZyncError

_TIMEOUT = 10.0
_NOT_FOUND = 404


def from_connect(url: str, name: str) -> dict[str, str]:
    """Reads a connector's config by `GET <url>/connectors/<name>/config`.

    Returns:
        The connector's properties by name, all as text.

    Raises:
        UsageError: the connector does not exist, or the URL is not Connect's.
        ZyncError: Connect does not answer.
    """
    if not url.startswith(("http://", "https://")):
        msg = f"--connect: {url!r} is no URL like http://localhost:8083"
        raise UsageError(msg)
    address = f"{url.rstrip('/')}/connectors/{quote(name, safe='')}/config"
    try:
        with urllib.request.urlopen(address, timeout=_TIMEOUT) as answer:  # noqa: S310 - http and https only
            return _config(json.load(answer), address, name)
    except urllib.error.HTTPError as error:
        if error.code == _NOT_FOUND:
            msg = f"Kafka Connect at {url} has no connector {name!r} (`GET /connectors` names those that it has)"
            raise UsageError(msg) from error
        msg = f"Kafka Connect at {url} answers with {error.code} {error.reason}"
        raise ZyncError(msg) from error
    except ValueError as error:
        msg = f"{address} answers with what is no JSON: is it Kafka Connect's?"
        raise UsageError(msg) from error
    except OSError as error:
        msg = f"Kafka Connect at {url} does not answer: {getattr(error, 'reason', error)}"
        raise ZyncError(msg) from error


def from_file(path: Path) -> dict[str, str]:
    """Reads a connector's config from a file.

    The file is JSON, with or without `name` and `config` around the properties; or Java properties, if its name ends
    in `.properties`.

    Returns:
        The connector's properties by name, all as text.

    Raises:
        UsageError: the file cannot be read, or is in neither format.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise UsageError(msg) from error
    if path.suffix == ".properties":
        return dict(_properties(text))
    try:
        return _config(json.loads(text), str(path))
    except ValueError as error:
        msg = f"{path} is no JSON ({error}): a file of properties is named *.properties"
        raise UsageError(msg) from error


def _config(document: Any, source: str, name: str | None = None) -> dict[str, str]:
    """Returns the properties in a parsed JSON document, all as text.

    Args:
        document: an object of properties, or {"name": …, "config": {…}}.
        source: the document's URL or path, for the error message.
        name: the connector's name, used if the document has none.
    """
    properties = document.get("config", document) if isinstance(document, dict) else None
    if not isinstance(properties, dict) or any(isinstance(value, dict | list) for value in properties.values()):
        msg = f"{source} is no connector's config: an object of names and values"
        raise UsageError(msg)
    name = document.get("name") or name
    name_property = {"name": str(name)} if name else {}
    return name_property | {key: _text(value) for key, value in properties.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _properties(text: str) -> Iterator[tuple[str, str]]:
    r"""Yields the (name, value) pairs of a Java properties file.

    `#` and `!` begin comments; a `\` at the end of a line continues it on the next.
    """
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", text)
    for line in map(str.strip, text.splitlines()):
        if line and line[0] not in "#!":
            match = re.fullmatch(r"((?:\\.|[^\\\s:=])*)\s*[:=]?\s*(.*)", line)
            if match:
                yield _unescape(match[1]), _unescape(match[2])


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(match[1], match[1]), text)
