"""sync-to kafka in formats that have schemas beside sync-to kafka in JSON: the same rows, each through Python."""

from pathlib import Path

from bench.harness import ZYNC, Result, answering, broker, child, log, median
from bench.staged import Staged

ROWS = 400_000
ROUNDS = 3
FORMATS = ("json", "avro", "protobuf", "json-schema")
_ANSWERS = {"GET /subjects/rows-value/versions": [], "POST /subjects/rows-value/versions": {"id": 1}}
_CONFIG = """lake: {lake}
registry: {{url: "{url}"}}
outputs: [{{topic: rows, sql: rows.sql}}]
deliver: {{kafka: {{name: {name}, formats: {{value: {value}}}}}}}
"""


def run(folder: Path) -> list[Result]:
    """The ratios of the median rates of all rounds."""
    Staged(folder / "lake" / "staging").sync(ROWS)
    (folder / "rows.sql").write_text("SELECT seqno FROM records")
    rates: dict[str, list[float]] = {value: [] for value in FORMATS}
    with broker() as servers, answering(_ANSWERS) as url:
        for number in range(ROUNDS):
            for value in FORMATS:
                said = {"lake": folder / "lake", "url": url, "name": f"{value}-{number}", "value": value}
                (folder / "zync.yaml").write_text(_CONFIG.format(**said))
                command = [*ZYNC, "sync-to", "kafka", "staging", "--until-caught-up", "--json"]
                one = child(*command, "--bootstrap-servers", servers, cwd=folder)
                if one.json["rows"] != {"rows": ROWS}:
                    msg = f"sync-to sent {one.json['rows']}, not {ROWS} rows"
                    raise RuntimeError(msg)
                rates[value].append(ROWS / one.json["busy"])
            log(", ".join(f"{value} {found[-1]:,.0f}/s" for value, found in rates.items()))
    rate = {value: median(found) for value, found in rates.items()}
    return [
        Result(
            f"sync-to kafka's rate in {value} by that in JSON",
            rate[value] / rate["json"],
            "×",
            0.5,
            more=True,
            details=rates,
        )
        for value in FORMATS[1:]
    ]
