"""Collects the metrics of all parts for a single address: each sample with its part, and whether the part runs."""

import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from zync.metrics.base import Metrics
from zync.run.supervisor import Part

_TIMEOUT_SECONDS = 5
_READY_SECONDS = 0.8
"""The bound of a part's answer to `/readyz`, all parts being asked at once: `run` itself answers within a second."""
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Figures:
    """A part's samples, scraped at the moment `at` (of `time.monotonic`)."""

    at: float = 0.0
    samples: dict[tuple[str, Labels], float] = field(default_factory=dict)

    def total(self, name: str) -> float:
        """Returns the sum of the samples of a name."""
        return sum(value for (sample_name, _), value in self.samples.items() if sample_name == name)

    def by(self, name: str, label: str) -> dict[str, float]:
        """Returns the samples of a name, by the value of a label."""
        return {
            dict(labels)[label]: value for (sample_name, labels), value in self.samples.items() if sample_name == name
        }


def _get(address: str, path: str, seconds: float = _TIMEOUT_SECONDS) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://{address}{path}", timeout=seconds) as answer:  # noqa: S310 - a part
            return int(answer.status), answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()
    except OSError as error:
        return 0, str(error)


def _readiness(part: Part) -> tuple[int, str]:
    """Asks a part whether it is ready; a part that does not answer at once is not."""
    address = part.address
    return _get(address, "/readyz", _READY_SECONDS) if address else (0, part.state())


def families(part: Part) -> list[Metric]:
    """Scrapes a part's metrics; empty if it does not answer."""
    code, text = _get(part.address, "/metrics") if part.address else (0, "")
    return list(text_string_to_metric_families(text)) if code == 200 else []  # noqa: PLR2004 - HTTP's


def figures(part: Part) -> Figures:
    """Scrapes a part's samples."""
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): float(sample.value)
        for family in families(part)
        for sample in family.samples
    }
    return Figures(time.monotonic(), samples)


class RunMetrics(Metrics, Collector):
    """The metrics of `zync run`."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        super().__init__(stuck_after=60)
        self.parts = parts
        self.registry.register(self)

    def describe(self) -> list[Metric]:
        """Returns no metrics: which there are is known only when the parts are scraped."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yields all parts' samples by family, and for each part whether it runs and how often it was restarted."""
        up = GaugeMetricFamily("zync_run_up", "Whether the part runs.", labels=("part",))
        restarts = CounterMetricFamily("zync_run_restarts", "Times that the part was started again.", labels=("part",))
        merged: dict[str, Metric] = {}
        for part in self.parts:
            up.add_metric((part.name,), float(part.runs))
            restarts.add_metric((part.name,), part.restarts)
            for family in families(part):
                metric = merged.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    metric.add_sample(sample.name, {**sample.labels, "part": part.name}, sample.value)
        yield from (up, restarts, *merged.values())

    def stuck(self) -> str | None:
        """Returns the reasons of all parts that are stuck; None if none is, and the supervisor's loop runs."""
        with ThreadPoolExecutor(len(self.parts)) as pool:
            answers = list(pool.map(_readiness, self.parts))
        reasons = []
        for part, (code, text) in zip(self.parts, answers, strict=True):
            if code != 200:  # noqa: PLR2004 - HTTP's
                reasons.append(f"{part.name}: {text.strip()}")
            elif part.falters:
                reasons.append(f"{part.name}: started again and again")
        return "; ".join(reasons) or super().stuck()
