"""sync-to kafka beside a plain idempotent producer that sends the same rows from memory, from first row to last.

The plain one has the rows as Python strings before it begins; sync-to reads them from staging, and gives each its
headers. Both are processes of their own with the same settings of librdkafka.
"""

import shutil
import sys
from pathlib import Path

from bench.harness import RECORDS, ZYNC, Result, broker, child, log, median, topic
from bench.staged import Staged

PARTITIONS = 4
ROUNDS = 5
SYNCS = 4

_PLAIN = """
import gc, json, sys, time
import pyarrow.compute as pc
from confluent_kafka import Producer
from deltalake import DeltaTable
servers, topic, staging, headers = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4] == "headers"
rows = DeltaTable(staging).to_pyarrow_table(columns=["kind", "key", "value"])
rows = rows.filter(pc.equal(rows["kind"], "output"))
keys, values = rows["key"].to_pylist(), rows["value"].to_pylist()
said = [("zync.seqno", b"123456"), ("zync.txn", b"123456"), ("zync.position", b"123456")] if headers else None
producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "partitioner": "murmur2_random",
    "linger.ms": 5, "batch.num.messages": 10000, "queue.buffering.max.kbytes": 65536})
gc.disable()
started = time.monotonic()
for number, (key, value) in enumerate(zip(keys, values)):
    while True:
        try:
            if said:
                producer.produce(topic, value, key, headers=said)
            else:
                producer.produce(topic, value, key)
            break
        except BufferError:
            producer.poll(0.05)
    if number % 1000 == 0:
        producer.poll(0)
producer.flush()
print(json.dumps({"busy": time.monotonic() - started}))
"""


def run(folder: Path) -> list[Result]:
    """The ratio of the median times of all rounds; the plain producer with and without headers."""
    lake = folder / "lake"
    staged = Staged(lake / "staging")
    for _ in range(SYNCS):
        staged.sync(RECORDS // SYNCS)
    rates: dict[str, list[float]] = {"plain": [], "headers": [], "zync": []}
    peak = 0.0
    with broker() as servers:
        for number in range(ROUNDS):
            for how in ("plain", "headers"):
                topic(servers, f"{how}-{number}", PARTITIONS)
                command = [sys.executable, "-c", _PLAIN, servers, f"{how}-{number}", str(lake / "staging"), how]
                rates[how].append(RECORDS / child(*command).json["busy"])
            kafka = f"{{name: bench-{number}, topics: {{rows: {{as: zync-{number}, partitions: {PARTITIONS}}}}}}}"
            output = "outputs: [{topic: rows, sql: rows.sql}]"
            (folder / "rows.sql").write_text("SELECT seqno FROM records")
            (folder / "zync.yaml").write_text(f"lake: {lake}\n{output}\ndeliver: {{kafka: {kafka}}}\n")
            command = [*ZYNC, "sync-to", "kafka", "staging", "--until-caught-up", "--json"]
            one = child(*command, "--bootstrap-servers", servers, cwd=folder)
            if sum(one.json["rows"].values()) != RECORDS:
                msg = f"sync-to sent {one.json['rows']}, not {RECORDS} rows"
                raise RuntimeError(msg)
            rates["zync"].append(RECORDS / one.json["busy"])
            peak = max(peak, one.peak_mb)
            log(", ".join(f"{how} {found[-1]:,.0f}/s" for how, found in rates.items()) + f", {peak:,.0f} MB")
    shutil.rmtree(lake)
    rate = {how: median(found) for how, found in rates.items()}
    return [
        Result(
            "sync-to kafka's rate by a plain idempotent producer's",
            rate["zync"] / rate["plain"],
            "×",
            0.5,
            more=True,
            details=rates,
        ),
        Result("the same, by one that sends such headers, too", rate["zync"] / rate["headers"], "×"),
        Result("sync-to kafka's peak memory", peak, "MB"),
    ]
