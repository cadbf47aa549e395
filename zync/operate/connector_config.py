"""A connector's config: from Kafka Connect's REST API, or from a file as it is given to Connect."""

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
    """The config of the connector of that name, as `GET <url>/connectors/<name>/config` answers.

    Raises:
        UsageError: there is no such connector, or the URL is none of Connect's.
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
    """The config in a file: JSON, with or without `name` and `config` around it; or Java's properties.

    Raises:
        UsageError: the file cannot be read, or is neither.
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


def _config(found: Any, where: str, name: str | None = None) -> dict[str, str]:
    """The properties of what was found there, all as text."""
    given = found.get("config", found) if isinstance(found, dict) else None
    if not isinstance(given, dict) or any(isinstance(value, dict | list) for value in given.values()):
        msg = f"{where} is no connector's config: an object of names and values"
        raise UsageError(msg)
    name = found.get("name") or name
    named = {"name": str(name)} if name else {}
    return named | {key: _text(value) for key, value in given.items() if value is not None}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _properties(text: str) -> Iterator[tuple[str, str]]:
    r"""The entries of a file of Java's properties: `#` and `!` begin comments, a `\` at its end continues a line."""
    text = re.sub(r"(?<!\\)((?:\\\\)*)\\\r?\n[ \t\f]*", r"\1", text)
    for line in map(str.strip, text.splitlines()):
        if line and line[0] not in "#!":
            match = re.fullmatch(r"((?:\\.|[^\\\s:=])*)\s*[:=]?\s*(.*)", line)
            if match:
                yield _unescaped(match[1]), _unescaped(match[2])


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}.get(found[1], found[1]), text)
