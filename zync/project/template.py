"""`zync init`: a commented config and an example rule that run unchanged, and the config's JSON Schema for editors."""

from pathlib import Path

from zync.errors import UsageError
from zync.project.schema import FILE_NAME, config_schema_text

_CONFIG = (
    f"# yaml-language-server: $schema={FILE_NAME}\n"
    + """\
# What zync reads, how it knows a transaction, and what it makes of it. `zync check` reads this with you.
lake: ./lake                       # folder (or URI) of the tables raw and staging

kafka:                             # any librdkafka property; ${NAME} reads the environment, ${file:PATH} a file
  bootstrap.servers: "localhost:9092"

topics:                            # names, or "^regex"
  orders:
    id: "value:txn"                # SQL: which transaction a record belongs to
    # as: orders                   # the view's name in rules
    # schema: "txn STRING, n INT"  # DDL of the value; without it, value is VARIANT
    # null_id: single              # records without id are transactions by themselves; default: quarantine
  payments: {id: "value:txn"}

transactions:
  # SQL over all records of a transaction. Kafka keeps no order across partitions: name counts or participants.
  done: "count(*) = max(value:n::int)"
  expire_after: 24h                # how long one in flight holds the cursor
  remember: 1000000                # for how many records an id that is done is remembered

outputs:                           # rules: one SELECT each; several may feed one topic
  - {topic: paid_orders, sql: etl/paid_orders.sql, key: [orderID]}

# deliver:                         # zync sync-to kafka staging: made so, if they are not there
#   kafka: {topics: {paid_orders: {partitions: 6, cleanup_policy: compact}}}  # formats: {value: avro}, with a registry

limits: {max_quarantined: 100}     # transactions that may be set aside in one sync; more stop it
spark: {}                          # any Spark property
"""
)

_RULE = """\
-- One row for each order with its payment. seqno is the transaction's: joining by it stays inside the transaction.
SELECT
  seqno,
  o.value:orderID::bigint AS orderID,
  o.value:item::string AS item,
  p.value:amount::decimal(10, 2) AS amount
FROM orders o JOIN payments p USING (seqno)
"""


def init(folder: Path) -> list[Path]:
    """Writes the files into `folder` and returns their paths.

    Raises:
        UsageError: One of the files exists already. Nothing was written.
    """
    files = {
        folder / "zync.yaml": _CONFIG,
        folder / "etl" / "paid_orders.sql": _RULE,
        folder / FILE_NAME: config_schema_text(),
    }
    for path in files:
        if file := next((parent for parent in path.parents if parent.is_file()), None):
            msg = f"{file} is a file: give a folder"
            raise UsageError(msg)
        if path.exists():
            msg = f"{path} is there already: nothing was written"
            raise UsageError(msg)
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return list(files)
