"""The catalog that delivered tables are registered in: the section `deliver.tables.catalog` of the config."""

import re
from dataclasses import dataclass
from typing import Literal

_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")
SLOTS = ("topic", "parent", "name")
"""What a pattern of names may have in braces."""
PATTERN = rf"(?:[a-zA-Z0-9_]|\{{(?:{'|'.join(SLOTS)})\}})+"
"""What a pattern of names looks like."""
MAX_NAME = 128
"""The most characters of a name: a Hive metastore has that many for a database."""


@dataclass(frozen=True)
class CatalogName:
    """The name of a table or view in a catalog."""

    database: str
    name: str

    def __str__(self) -> str:
        return f"{self.database}.{self.name}"


@dataclass(frozen=True)
class Catalog:
    """A catalog that has the delivered tables by name, as external Delta tables.

    `database`, `table`, `view_database` and `view` are patterns of names: `{topic}` is the output topic, `{name}` what
    stands after its last dot, `{parent}` what stands before that. Names are in lower case, and have `_` for all but
    letters, digits and `_`.

    Attributes:
        type: What it is: a Hive metastore (`hive`), or the AWS Glue Data Catalog (`glue`), which needs the extra:
            `pip install 'zync[glue]'`.
        uri: Address of the Hive metastore, `thrift://host:9083`; several with commas between. Default: what `spark`
            says of it.
        region: Region of Glue. Default: `storage.region`, or else as AWS's own tools find it.
        endpoint: URL of a Glue that is not AWS's own, `http://…` or `https://…`.
        database: The database of a table.
        table: The name of a table.
        views: Whether the catalog has a view of each table, too, at the versions of the newest snapshot. Needs
            `type: hive`.
        view_database: The database of a view. Default: that of the table.
        view: The name of a view.
    """

    type: Literal["hive", "glue"]
    uri: str = ""
    region: str = ""
    endpoint: str = ""
    database: str = "zync"
    table: str = "{topic}"
    views: bool = False
    view_database: str = ""
    view: str = "{topic}_consistent"

    def table_name(self, topic: str) -> CatalogName:
        """Returns the name of an output topic's table."""
        return CatalogName(_fill(self.database, topic), _fill(self.table, topic))

    def view_name(self, topic: str) -> CatalogName:
        """Returns the name of the view of an output topic's table."""
        return CatalogName(_fill(self.view_database or self.database, topic), _fill(self.view, topic))

    def names(self, topic: str) -> dict[str, CatalogName]:
        """Returns the names of an output topic, by what has them: `table`, and `view` where there are views."""
        return {"table": self.table_name(topic), **({"view": self.view_name(topic)} if self.views else {})}


def _fill(pattern: str, topic: str) -> str:
    """Returns the name that a pattern makes of an output topic."""
    parent, _, name = topic.rpartition(".")
    slots = {"topic": topic, "parent": parent, "name": name}
    text = re.sub(r"\{(\w+)\}", lambda slot: slots[slot[1]], pattern)
    return _NOT_IN_NAMES.sub("_", text).lower()
