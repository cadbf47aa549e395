"""The commands of the pipeline, from Kafka or files to staging, and `zync run`."""

import sys
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zync.cli.common import Common, common_options
from zync.cli.completion import input_topics, tables
from zync.cli.options import (
    CommitBytes,
    CommitEvery,
    MaxMemory,
    Metrics,
    Standby,
    measuring,
    parsed,
    partition_offset,
    starting_point,
    stop_on_signals,
)
from zync.config.units import duration
from zync.errors import OwnedError, UsageError
from zync.ingest import memory
from zync.lake.paths import locate
from zync.log import logs_as_json

if TYPE_CHECKING:
    from zync.raw.append import Appended


@common_options(log_format=True)
def sync_from(
    common: Common,
    source: Annotated[Literal["kafka"], typer.Argument(help="Where from.")],
    table: Annotated[str, typer.Argument(help="The table to append to, usually raw.", autocompletion=tables)],
    topic: Annotated[
        list[str] | None, typer.Option(help="A name or ^regex; repeatable.", autocompletion=input_topics)
    ] = None,
    until_caught_up: Annotated[bool, typer.Option(help="End when raw has all that is in Kafka now.")] = False,
    commit_every: CommitEvery = timedelta(seconds=5),
    commit_rows: Annotated[int, typer.Option(min=1)] = 100_000,
    commit_bytes: CommitBytes = None,
    max_memory: MaxMemory = memory.DEFAULT,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Over the config's.")] = None,
    on_gap: Annotated[Literal["stop", "skip"], typer.Option(help="When unread offsets are gone from Kafka.")] = "stop",
    start: Annotated[
        str | None,
        typer.Option("--from", metavar="WHERE", help="earliest, latest or a time, where raw has no position yet."),
    ] = None,
    from_offset: Annotated[
        list[str] | None, typer.Option(metavar="TOPIC:PARTITION=N", help="Likewise, of one partition; repeatable.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Move positions that raw has, on record.")] = False,
    instance: Annotated[
        str | None, typer.Option(envvar="ZYNC_INSTANCE", help="This process's own name: started again, it goes on.")
    ] = None,
    metrics: Metrics = None,
) -> None:
    """Append Kafka records to raw, exactly once, until stopped.

    \b
    zync sync-from kafka raw --topic order --topic menu --until-caught-up
    zync sync-from kafka raw --topic '^shop\\..*' --commit-every 1s
    zync sync-from kafka raw --from 2026-01-31T12:00:00Z --from-offset order:0=1200
    """
    from zync.ingest.consume import Ingest, sync_from_kafka
    from zync.ingest.start_position import Begin
    from zync.kafka.partition import Partition

    if force and start is None and not from_offset:
        msg = "it is for --from and --from-offset"
        raise typer.BadParameter(msg, param_hint="--force")
    offsets: dict[Partition, int] = {}
    for topic_and_number, offset in map(partition_offset, from_offset or ()):
        if offsets.setdefault(Partition(*topic_and_number), offset) != offset:
            msg = "{}:{} is to begin at two offsets".format(*topic_and_number)
            raise typer.BadParameter(msg, param_hint="--from-offset")

    settings, out = common.read_config(), common.out
    settings = settings.with_kafka(bootstrap_servers=bootstrap_servers, group_instance_id=instance)
    ingest = Ingest(
        location=locate(table, settings.lake),
        kafka=settings.kafka,
        topics=tuple(topic or settings.sources),
        until_caught_up=until_caught_up,
        commit_every=commit_every,
        commit_rows=commit_rows,
        commit_bytes=commit_bytes,
        max_memory=max_memory,
        on_gap=on_gap,
        begin=Begin(None if start is None else starting_point(start), offsets, force),
        transactions=settings.transactions,
    )

    def committed(appended: "Appended") -> None:
        out.committed(appended)
        if collector:
            collector.committed(appended)

    with measuring("zync.ingest.metrics:IngestMetrics", metrics, out) as collector:
        ingested = sync_from_kafka(ingest, stop_on_signals(), committed, collector)
    out.ingested(ingested)


@common_options()
def load(
    common: Common,
    table: Annotated[str, typer.Argument(help="The table to append to, usually raw.", autocompletion=tables)],
    files: Annotated[list[str], typer.Argument(help="JSON Lines; .gz too; - is standard input.")],
) -> None:
    """Append records from JSON Lines to raw, as one commit.

    \b
    zync load raw records.jsonl
    echo '{"topic":"t","value":{"txn":1}}' | zync load raw -
    """
    from zync.raw.jsonl import load as load_files

    common.out.loaded(load_files(locate(table, common.read_config().lake), files))


@common_options(log_format=True)
def sync(
    common: Common,
    raw: Annotated[str, typer.Argument(help="The table to read, usually raw.", autocompletion=tables)],
    staging: Annotated[str, typer.Argument(help="The table to write, usually staging.", autocompletion=tables)],
    follow: Annotated[bool, typer.Option("--follow", help="Go on whenever there is something new.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master; default the config's, or local[2].")] = None,
    standby: Standby = False,
    metrics: Metrics = None,
) -> None:
    """Commit to staging those of raw's transactions that are whole. Once, or whenever there is something new.

    \b
    zync sync raw staging
    zync sync raw staging --follow
    zync sync raw staging --follow --standby
    """
    from zync.sync.process import follow as follow_raw
    from zync.sync.process import sync_once

    check_tables_of_sync(raw, staging)
    settings, out = common.read_config(needed=True), common.out
    locations = locate(raw, settings.lake), locate(staging, settings.lake)
    if not follow:
        if metrics:
            msg = "there is nothing to watch in one sync: give --follow too"
            raise typer.BadParameter(msg, param_hint="--metrics")
        with out.showing_progress() as report:
            outcome = sync_once(
                settings, *locations, master=master, report=report, on_sync=out.synced_partly, standby=standby
            )
        out.synced(outcome)
        return
    stop = stop_on_signals()
    with measuring("zync.sync.metrics:SyncMetrics", metrics, out) as collector, out.showing_progress() as report:
        follow_raw(settings, *locations, stop, out.followed, master, collector, report=report, standby=standby)


def check_tables_of_sync(raw: str, staging: str) -> None:
    """Checks that neither table is named like the source or the target of another command.

    Raises:
        UsageError: It is.
    """
    if raw == "kafka":
        msg = f"kafka is no table: `zync sync-from kafka {staging}` brings records from Kafka to the table {staging}"
        raise UsageError(msg)
    if staging in ("kafka", "tables"):
        table = "staging" if raw == "raw" else raw
        msg = f"{staging} is no table to sync into: `zync sync-to {staging} {table}` delivers what is in {table}"
        raise UsageError(msg)


@common_options(log_format=True, as_json=False)
def run(
    common: Common,
    commit_every: Annotated[str | None, typer.Option(metavar="TIME", help="Of sync-from; default 5s.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Over the config's.")] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Beside another `zync run`: each part waits until the other's has died.")
    ] = False,
    metrics: Metrics = None,
) -> None:
    """Run all that the config says, each part a process. Those are sync-from, sync --follow, and what `deliver` names.

    On a terminal it shows how they do. A part that dies is started again, but not for ever where it is a mistake in
    the config. Ctrl-C stops all of them.

    \b
    zync run
    zync run --commit-every 500ms --metrics localhost:9464
    zync run --standby
    """
    from zync.lake.lock import Wait, owned
    from zync.run import supervisor

    if commit_every is not None:
        parsed(duration, commit_every)  # a wrong value would make the part fail at each restart
    settings, out = common.read_config(needed=True), common.out
    values = {
        "--config": str(common.config.absolute()) if common.config else None,
        "--bootstrap-servers": bootstrap_servers,
        "--commit-every": commit_every,
    }
    options = {key: value for key, value in values.items() if value is not None}
    stop = stop_on_signals()
    with ExitStack() as stack:
        is_alone = True
        try:
            who = f"another `zync run` is running on the lake {settings.lake}"
            stack.enter_context(owned(locate("run", settings.lake), who, what="run", wait=Wait(stop=stop)))
        except OwnedError:
            if not standby:
                raise
            is_alone = False
        parts = supervisor.parts(settings, settings.lake, options, standby=standby, is_alone=is_alone)
        say = out.part
        collector = stack.enter_context(measuring("zync.run.scrape:RunMetrics", metrics, out, parts))
        if out.err.isatty() and not logs_as_json():
            from zync.run.view import View

            live = View(parts)
            say = live.say
            stack.enter_context(live.shown())
        pipeline = supervisor.Pipeline(parts, stop, say)
        code = pipeline.run(collector.turn if collector else lambda: None)
    out.progress(f"stopped; {supervisor.summary(parts)}", event="stopped")
    sys.exit(code)
