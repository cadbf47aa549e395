"""Runs the benchmarks named, or all; each in a process of its own."""

import importlib
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from bench.harness import Result, as_rows, log, scratch_environment, table

NAMES = (
    "startup",
    "cold",
    "path",
    "commits",
    "sync_from",
    "sync_from_spark",
    "processes",
    "sync_to_kafka",
    "sync_to_kafka_formats",
    "sync_to_tables",
    "bank",
    "latency",
    "rate",
    "reassembly",
    "preset",
    "quarantine",
    "decode",
    "formats",
    "large",
    "scale",
    "backlog",
    "maintain",
    "follow",
    "store",
)
_RESULTS = Path(__file__).parent / "results.json"


def main(arguments: list[str]) -> int:
    """Prints a table and keeps the figures in results.json; 1 if a goal was missed, 2 for a name that is none."""
    if arguments[:1] == ["--one"]:
        print(json.dumps([asdict(one) for one in _run(arguments[1])]))
        return 0
    names = [one.replace("-", "_") for one in arguments] or list(NAMES)
    unknown = [one for one in arguments if one.replace("-", "_") not in NAMES]
    if unknown:
        log(f"no benchmark {unknown[0]!r}: there are {', '.join(NAMES)}")
        return 2
    results: list[tuple[str, Result]] = []
    for name in names:
        log(name)
        done = subprocess.run(
            [sys.executable, "-m", "bench", "--one", name], stdout=subprocess.PIPE, text=True, check=True
        )
        results += [(name, Result(**one)) for one in json.loads(done.stdout.splitlines()[-1])]
        _keep(results)
    print(table(results))
    return 0 if all(one.met for _, one in results) else 1


def _keep(results: list[tuple[str, Result]]) -> None:
    """Writes results.json: these instead of what the same benchmarks gave before; the others stay."""
    new = {name for name, _ in results}
    old = json.loads(_RESULTS.read_text()) if _RESULTS.exists() else []
    kept = [one for one in old if one["benchmark"] not in new and one["benchmark"] in NAMES]
    rows = sorted([*kept, *as_rows(results)], key=lambda one: NAMES.index(one["benchmark"]))
    _RESULTS.write_text(json.dumps(rows, indent=1) + "\n")


def _run(name: str) -> list[Result]:
    scratch_environment()
    with tempfile.TemporaryDirectory(prefix="zync-bench-") as folder:
        results: list[Result] = importlib.import_module(f"bench.{name}").run(Path(folder))
    return results


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
