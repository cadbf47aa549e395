"""Sends run events by OpenLineage's client, from a thread of its own; imported only when lineage is on."""

import logging
import os
import queue
import threading
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache

from openlineage.client import OpenLineageClient
from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    DatasetFacet,
    RunFacet,
    error_message_run,
    job_type_job,
    output_statistics_output_dataset,
    schema_dataset,
)
from openlineage.client.uuid import generate_new_uuid

from zync.errors import UsageError
from zync.log import event
from zync.observe.datasets import Dataset
from zync.observe.receiver import Receiver

log = logging.getLogger(__name__)

_PRODUCER = "https://zync.example/source"
"""The URI of what made an event: the project's, as in pyproject.toml."""
_MOST_EVENTS = 1000
"""How many events wait for a server that is away; later ones are lost."""


class Sender:
    """Sends the events of a run.

    Args:
        job: The name of its job.
        is_endless: Whether the job goes on until it is stopped.
    """

    def __init__(self, job: str, *, is_endless: bool) -> None:
        self._outbox = outbox()
        self._run = str(generate_new_uuid())
        processing = "STREAMING" if is_endless else "BATCH"
        job_type = job_type_job.JobTypeJobFacet(processing, "ZYNC", "JOB", producer=_PRODUCER)
        self._job = Job(os.environ.get("OPENLINEAGE_NAMESPACE") or "zync", job, {"jobType": job_type})

    def send(
        self, state: str, inputs: Iterable[Dataset], outputs: Mapping[Dataset, int | None], error: str | None
    ) -> None:
        """Sends that the run is in a state.

        Args:
            state: START, RUNNING, COMPLETE, FAIL or ABORT.
            inputs: What it has read.
            outputs: The rows of what it has written; None: they are not known yet.
            error: Why it failed.
        """
        facets: dict[str, RunFacet] = {}
        if error:
            facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(error, "PYTHON", producer=_PRODUCER)
        run_event = RunEvent(
            eventType=RunState(state),
            eventTime=datetime.now(UTC).isoformat(),
            run=Run(self._run, facets),
            job=self._job,
            inputs=[InputDataset(source.namespace, source.name, facets=_schema(source)) for source in inputs],
            outputs=[_output(target, rows) for target, rows in outputs.items()],
            producer=_PRODUCER,
        )
        self._outbox.put(run_event)


def _output(dataset: Dataset, rows: int | None) -> OutputDataset:
    output = OutputDataset(dataset.namespace, dataset.name, facets=_schema(dataset))
    if rows is not None:
        facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=rows, producer=_PRODUCER)
        output.outputFacets = {"outputStatistics": facet}
    return output


def _schema(dataset: Dataset) -> dict[str, DatasetFacet]:
    if not dataset.columns:
        return {}
    columns = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in dataset.columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(columns, producer=_PRODUCER)}


class _Outbox:
    """The events that wait to be sent, in order. A server that is away delays no one."""

    def __init__(self) -> None:
        self._client = OpenLineageClient()
        if not self._client.config.transport and not os.environ.get("OPENLINEAGE_URL"):
            msg = "OPENLINEAGE_CONFIG names no file with a transport"  # it would print all events
            raise UsageError(msg)
        self._receiver = Receiver("the server of lineage", event("lineage_away"), event("lineage_back"))
        self._events: queue.Queue[RunEvent | None] = queue.Queue(_MOST_EVENTS)
        thread = threading.Thread(target=self._send_all, name="lineage", daemon=True)
        thread.start()

        def close() -> None:
            self._events.put(None)
            thread.join()

        self._receiver.close_at_exit(close)

    def put(self, run_event: RunEvent) -> None:
        """Has an event sent after those before it."""
        try:
            self._events.put_nowait(run_event)
        except queue.Full:
            self._receiver.failed()

    def _send_all(self) -> None:
        while (run_event := self._events.get()) is not None:
            try:
                self._client.emit(run_event)
            except Exception:  # noqa: BLE001 - transports raise what they like; the work does not depend on them
                log.debug("an event of OpenLineage was not sent", exc_info=True)
                self._receiver.failed()
            else:
                self._receiver.answered()


@cache
def outbox() -> _Outbox:
    """Returns the outbox of this process.

    Raises:
        Exception: OpenLineage's config is wrong; each of its transports raises errors of its own.
    """
    return _Outbox()
