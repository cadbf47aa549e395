"""sync-from beside a loop that consumes the same records and drops them: how much of Kafka's speed is left.

Both are processes of their own with the same fetch settings, and both are timed from the first record that they get
(sync-from to its last commit): starting, joining the group and leaving it are the same for both, and not counted.
"""

import sys
from pathlib import Path

from bench.harness import RECORDS, ZYNC, Result, broker, child, log, produce, topic, values

PARTITIONS = 4
ROUNDS = 5

_EMPTY_LOOP = """
import gc, json, sys, time
from confluent_kafka import Consumer
servers, topic, count, group = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "auto.offset.reset": "earliest",
    "enable.auto.commit": False, "fetch.queue.backoff.ms": 10, "queued.max.messages.kbytes": 32768})
consumer.subscribe([topic])
gc.disable()
got, started = 0, None
while got < count:
    got += len(consumer.consume(10_000, 0.1))
    if started is None and got:
        started = time.monotonic()
print(json.dumps({"busy": time.monotonic() - started}))
consumer.close()
"""


def run(folder: Path) -> list[Result]:
    """The ratio of the two best rates, and sync-from's peak memory."""
    with broker() as servers:
        topic(servers, "t", PARTITIONS)
        produce(servers, "t", values(RECORDS), PARTITIONS)
        empty, full, peaks, whole = [], [], [], []
        for number in range(ROUNDS):
            one = child(sys.executable, "-c", _EMPTY_LOOP, servers, "t", str(RECORDS), f"empty-{number}")
            empty.append(RECORDS / one.json["busy"])
            command = [*ZYNC, "sync-from", "kafka", "raw", "--until-caught-up", "--json", "--topic", "t"]
            one = child(*command, "--bootstrap-servers", servers, "--lake", folder / f"lake-{number}", cwd=folder)
            if one.json["records"] != RECORDS:
                msg = f"sync-from took {one.json['records']} records, not {RECORDS}"
                raise RuntimeError(msg)
            full.append(RECORDS / one.json["busy"])
            whole.append(one.seconds)
            peaks.append(one.peak_mb)
            log(f"empty loop {empty[-1]:,.0f}/s, sync-from {full[-1]:,.0f}/s, {peaks[-1]:,.0f} MB, {whole[-1]:.2f} s")
    details = {"empty_loop_per_second": empty, "sync_from_per_second": full, "process_seconds": whole}
    return [
        Result(
            "sync-from's rate by an empty consume loop's", max(full) / max(empty), "×", 0.40, more=True, details=details
        ),
        Result("sync-from's peak memory", max(peaks), "MB", 600),
    ]
