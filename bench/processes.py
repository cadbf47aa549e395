"""Several sync-from on one raw: what they do together, and how often one comes in another's way.

They share the partitions of one topic. Each commit is to the same table, one after the other: the retries say how
often one had to look again because another came first.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench.harness import ZYNC, Child, Result, broker, child, log, produce, topic, values

COUNT = 2_000_000
PARTITIONS = 8
PROCESSES = (1, 2, 4)
ROUNDS = 2


def run(folder: Path) -> list[Result]:
    """Records per second of 1, 2 and 4 processes, best of some rounds, and retries by commit of the last."""
    rates: dict[int, float] = {}
    retries: dict[int, float] = {}
    with broker() as servers:
        topic(servers, "t", PARTITIONS)
        produce(servers, "t", values(COUNT), PARTITIONS)
        for number in range(ROUNDS):
            for several in PROCESSES:
                done = _together(servers, folder / f"lake-{several}-{number}", several)
                taken = sum(one.json["records"] for one in done)
                if taken != COUNT:
                    msg = f"{several} processes took {taken} records, not {COUNT}"
                    raise RuntimeError(msg)
                rate = COUNT / max(one.json["busy"] for one in done)
                rates[several] = max(rate, rates.get(several, 0.0))
                retries[several] = sum(one.json["retries"] for one in done) / sum(one.json["commits"] for one in done)
                log(f"{several}: {rate:,.0f}/s, {retries[several]:.2f} retries a commit")
    alone, *others = PROCESSES
    return [
        Result(f"{alone} process", rates[alone], "records/s"),
        *(Result(f"{several} processes by one", rates[several] / rates[alone], "×", more=True) for several in others),
        *(Result(f"retries by commits of {several} processes", retries[several], "×") for several in others),
    ]


def _together(servers: str, lake: Path, several: int) -> list[Child]:
    command = [*ZYNC, "sync-from", "kafka", "raw", "--until-caught-up", "--json", "--topic", "t", "--lake", str(lake)]
    with ThreadPoolExecutor(several) as pool:
        begun = [pool.submit(child, *command, "--bootstrap-servers", servers) for _ in range(several)]
        return [one.result() for one in begun]
