"""What the parts measure, at one address: each sample with its part, and whether the part runs."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from zync.metrics.base import Metrics
from zync.run.supervisor import Part

_TIMEOUT_SECONDS = 5
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figures:
    """A part's samples, taken at a moment (of `time.monotonic`)."""

    at: float = 0.0
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def total(self, name: str) -> float:
        """The sum of the samples of that name."""
        return sum(value for (one, _), value in self.samples.items() if one == name)

    def by(self, name: str, label: str) -> dict[str, float]:
        """The samples of that name, by what they have for that label."""
        return {dict(of)[label]: value for (one, of), value in self.samples.items() if one == name}


def _ask(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=_TIMEOUT_SECONDS) as answer:  # noqa: S310 - a part
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def families(part: Part) -> list[Metric]:
    """What that part measures now; nothing where it does not answer."""
    code, text = _ask(part.address, "/metrics") if part.address else (0, "")
    return list(text_string_to_metric_families(text)) if code == 200 else []  # noqa: PLR2004 - HTTP's


def figures(part: Part) -> Figures:
    """The part's samples now."""
    found = [one for family in families(part) for one in family.samples]
    samples = {(one.name, tuple(sorted(one.labels.items()))): float(one.value) for one in found}
    return Figures(time.monotonic(), samples)


class RunMetrics(Metrics, Collector):
    """Those of `zync run`."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(stuck_after=60)
        self.parts = parts
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        """Nothing is known before it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All parts' samples, by family; and of each part whether it runs, and how often it was started again."""
        up = GaugeMetricFamily("zync_run_up", "Whether the part runs.", labels=("part",))
        restarts = CounterMetricFamily("zync_run_restarts", "Times that the part was started again.", labels=("part",))
        merged: dict[str, Metric] = {}
        for part in self.parts:
            up.add_metric((part.name,), float(part.runs))
            restarts.add_metric((part.name,), part.restarts)
            for family in families(part):
                into = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for one in family.samples:
                    into.add_sample(one.name, {**one.labels, "part": part.name}, one.value)
        yield from (up, restarts, *merged.values())

    def stuck(self) -> str | None:
        """Why the pipeline does not get on: of each part that does not."""
        found = []
        for part in self.parts:
            code, text = _ask(part.address, "/readyz") if part.address else (0, part.state())
            if code != 200:  # noqa: PLR2004 - HTTP's
                found.append(f"{part.name}: {text.strip()}")
            elif part.falters:
                found.append(f"{part.name}: started again and again")
        return "; ".join(found) or super().stuck()
