"""A staging for benchmarks of deliveries, written as a sync commits it, without Spark."""

import json
import random
import uuid
from pathlib import Path

import pyarrow as pa

from zync.staging.commit import add_rows, commit_files
from zync.staging.table import STAGING_SCHEMA, ensure_staging

PER_TRANSACTION = 4


def _struct(**columns: str) -> dict[str, object]:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()]
    return {"type": "struct", "fields": fields}


_VALUE = {"id": "integer", "owner": "string", "branch": "string", "balance": "decimal(12,2)", "currency": "string"}
_COLUMNS = {"rows": {"key": _struct(id="integer"), "value": _struct(**_VALUE, changed="timestamp")}}


class Staged:
    """A staging at that place; output topic `rows`, values of about 150 bytes, keys that are an `id`."""

    def __init__(self, location: Path, keys: int = 100_000) -> None:
        self.location, self.keys = location, keys
        self.table = ensure_staging(str(location))
        self.number = self.seqno = self.offset = 0
        self.chance = random.Random(7)

    def sync(self, count: int) -> None:
        """One more sync, of so many output rows, PER_TRANSACTION a transaction, with keys at random."""
        self.number += 1
        rows = []
        for _ in range(count // PER_TRANSACTION):
            self.seqno += 1
            of = {"seqno": self.seqno, "sync": self.number}
            for _ in range(PER_TRANSACTION):
                place = {"topic": "rows", "partition": 0, "offset": self.offset}
                key, value = self._row()
                rows.append(
                    {**of, "kind": "output", "kafka": place, "key": key, "value": value, "position": self.seqno}
                )
                self.offset += 1
            rows.append({**of, "kind": "done", "txn": str(self.seqno), "records": [], "count": PER_TRANSACTION})
        nonce = uuid.uuid4().hex
        cursor = {"kind": "cursor", "seqno": self.seqno, "head": self.seqno, "sync": self.number, "full": 1}
        cursor |= {"nonce": nonce, "offsets": [("rows", self.offset)], "raw": {"id": "bench", "version": 1}}
        cursor["state"] = json.dumps({"columns": _COLUMNS})
        rows.append({**cursor, "digests": []})
        folder = f"sync-{self.number:08d}"
        (self.location / folder).mkdir()
        add_rows(self.table, folder, pa.Table.from_pylist(rows, STAGING_SCHEMA))
        commit_files(self.table, folder, self.number, nonce, rows=len(rows))
        self.table.update_incremental()

    def _row(self) -> tuple[str, str]:
        """A key and a value at random."""
        number, cents = self.chance.randrange(self.keys), self.chance.randrange(10_000_000)
        return f'{{"id":{number}}}', (
            f'{{"id":{number},"owner":"customer {number:06}","branch":"branch office {number % 317}",'
            f'"balance":{cents // 100}.{cents % 100:02},"currency":"EUR",'
            f'"changed":"2026-03-{1 + cents % 28:02}T{cents // 3600 % 24:02}:00:00.000000Z"}}'
        )
