"""Checks the section `deliver.tables.catalog` of a config."""

import re
from collections.abc import Iterator

from zync.config.catalog import MAX_NAME, PATTERN, Catalog, CatalogName
from zync.config.model import Config

_METASTORE = re.compile(r"\s*thrift://[^\s/@,]+:[0-9]+/?\s*")
"""The address of a Hive metastore."""
_METASTORE_PROPERTIES = {"spark.hadoop.hive.metastore.uris", "spark.hadoop.javax.jdo.option.ConnectionURL"}
"""Properties by which Spark finds a Hive metastore, or its database."""
_KEYS_OF = {"uri": "hive", "views": "hive", "region": "glue", "endpoint": "glue"}
"""The keys that only a type of catalog has."""


def catalog_errors(config: Config) -> Iterator[tuple[str, str]]:
    """Yields what is wrong with the config's catalog: the key, and an error text that begins after the section's name.

    Args:
        config: The config, with the outputs whose tables get names in the catalog.
    """
    catalog = config.deliver.catalog
    if catalog is None:
        return
    for key in ("database", "table", "view_database", "view"):
        pattern = getattr(catalog, key)
        if not re.fullmatch(PATTERN, pattern) and (pattern or key != "view_database"):
            yield key, f".{key} may have letters, digits, _, {{topic}}, {{parent}} and {{name}}, and is {pattern!r}"
            return
    for key, type_ in _KEYS_OF.items():
        if getattr(catalog, key) and catalog.type != type_:
            yield key, f".{key} is for type: {type_}: take it out"
    if catalog.uri and not all(_METASTORE.fullmatch(uri) for uri in catalog.uri.split(",")):
        yield "uri", ".uri must be like thrift://host:9083"
    if catalog.endpoint and not re.match("https?://[^@]*$", catalog.endpoint):
        yield "endpoint", ".endpoint must begin with http:// or https://, and have no user or password"
    if catalog.type == "hive" and not catalog.uri and not _METASTORE_PROPERTIES.intersection(config.spark):
        yield "uri", " needs uri, the address of the Hive metastore: thrift://host:9083"
    yield from _name_errors(catalog, list(dict.fromkeys(rule.topic for rule in config.outputs)))


def _name_errors(catalog: Catalog, outputs: list[str]) -> Iterator[tuple[str, str]]:
    """Yields the errors of names that the patterns make of these outputs."""
    owners: dict[CatalogName, str] = {}
    for output in outputs:
        for key, name in catalog.names(output).items():
            owner = f"the {key} of output {output!r}"
            other = owners.setdefault(name, owner)
            if not (name.name and name.database):
                yield key, f": {owner} would have no whole name ({name}): name it by another pattern"
            elif max(len(name.name), len(name.database)) > MAX_NAME:
                text = f"would be {name}, and a name has {MAX_NAME} characters at most"
                yield key, f": {owner} {text}: name it by another pattern"
            elif other != owner:
                yield key, f": {other} and {owner} would both be {name}: name them by another pattern"
