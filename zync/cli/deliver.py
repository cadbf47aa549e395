"""The commands that deliver staging's rows to Kafka and to tables."""

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zync.cli.common import Common, common_options
from zync.cli.completion import tables
from zync.cli.options import Metrics, measuring, stop_on_signals
from zync.cli.output import Output
from zync.lake.paths import locate
from zync.text import amount

if TYPE_CHECKING:
    from zync.config.model import Config
    from zync.deliver.kafka.delivery import Delivered
    from zync.deliver.tables.snapshots import Snapshot

_GROUP_ROWS = 50_000


@common_options(log_format=True)
def sync_to(
    common: Common,
    target: Annotated[Literal["kafka", "tables"], typer.Argument(help="Where to.")],
    table: Annotated[str, typer.Argument(help="The table to deliver, usually staging.", autocompletion=tables)],
    until_caught_up: Annotated[bool, typer.Option(help="End when all is there that is in staging now.")] = False,
    group_rows: Annotated[
        int | None,
        typer.Option(min=1, help=f"Rows, of whole transactions, in a Kafka transaction; {_GROUP_ROWS:,} by default."),
    ] = None,
    one_by_one: Annotated[bool, typer.Option("--one-by-one", help="Each in a Kafka transaction of its own.")] = False,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Over the config's.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark's master (tables).")] = None,
    metrics: Metrics = None,
) -> None:
    """Send staging's rows on, in whole transactions, exactly once. Goes on until stopped.

    \b
    zync sync-to kafka staging
    zync sync-to kafka staging --until-caught-up --one-by-one
    zync sync-to tables staging
    """
    if one_by_one and group_rows:
        msg = "it is for all transactions but --one-by-one: give one of the two"
        raise typer.BadParameter(msg, param_hint="--group-rows")
    settings, out = common.read_config(needed=target == "tables"), common.out
    if target == "tables":
        for option, value in (
            *(("--group-rows", group_rows), ("--one-by-one", one_by_one)),
            ("--bootstrap-servers", bootstrap_servers),
        ):
            if value:
                msg = "it is for sync-to kafka"
                raise typer.BadParameter(msg, param_hint=option)
        _to_tables(settings, out, locate(table, settings.lake), master, metrics, until_caught_up=until_caught_up)
        return
    from zync.deliver.kafka.delivery import Delivery, sync_to_kafka

    servers = {"bootstrap.servers": bootstrap_servers} if bootstrap_servers else {}
    delivery = Delivery(
        staging=locate(table, settings.lake),
        kafka={**settings.kafka_to_deliver_to, **servers},
        config=settings,
        group_rows=1 if one_by_one else group_rows or _GROUP_ROWS,
        until_caught_up=until_caught_up,
    )

    def committed(delivered: "Delivered") -> None:
        out.progress(_progress_text(delivered), event="delivered", **asdict(delivered))

    with measuring("zync.deliver.metrics:KafkaDeliveryMetrics", metrics, out) as collector:
        delivered = sync_to_kafka(delivery, stop_on_signals(), committed, collector)
    rate = sum(delivered.rows.values()) / delivered.seconds if delivered.seconds else 0.0
    out.result(
        asdict(delivered) | {"rate": round(rate)},
        f"{_progress_text(delivered)}, in {amount(delivered.commits, 'Kafka transaction')}, "
        f"{delivered.seconds:.1f} s ({rate:,.0f} rows/s)",
    )


def _to_tables(  # noqa: PLR0913 - the command's options
    settings: "Config", out: Output, staging: str, master: str | None, metrics: str | None, *, until_caught_up: bool
) -> None:
    from zync.deliver.tables import delivery, snapshots
    from zync.lake.lock import owned
    from zync.spark.session import session

    def print_batch(batch: delivery.Batch) -> None:
        rows = ", ".join(f"{topic} {count:,}" for topic, count in batch.rows.items()) or "none"
        text = f"delivered through sync {batch.sync:,}, rows: {rows}, in {batch.seconds:.1f} s"
        out.progress(text, event="delivered", **asdict(batch))

    stop = stop_on_signals()
    folder = locate(snapshots.FOLDER, settings.lake)
    with owned(folder):  # raises before Spark starts, whose start would slow down the deliverer that holds the lock
        pass
    with measuring("zync.deliver.metrics:DeliveryMetrics", metrics, out) as collector:
        spark = session(master, settings.spark, brief=until_caught_up, lake=settings.lake)
        newest = delivery.sync_to_tables(
            spark, settings, staging, folder, stop, print_batch, collector, until_caught_up=until_caught_up
        )
    out.result(asdict(newest) if newest else {}, _snapshot_text(newest) if newest else "nothing was delivered yet")


@common_options()
def snapshot(
    common: Common,
    at: Annotated[str | None, typer.Option(metavar="SYNC|TIME", help="The newest that is not after it.")] = None,
    as_views: Annotated[bool, typer.Option("--sql", help="As statements that make views of those versions.")] = False,
) -> None:
    """Name the versions of delivered tables that belong together. At them no transaction is partly there.

    \b
    zync snapshot
    zync snapshot --at 2026-01-31T12:00:00Z --sql
    """
    from zync.deliver.tables import snapshots

    folder = locate(snapshots.FOLDER, common.read_config().lake)
    selected = snapshots.at(f"{folder}/{snapshots.NAME}", None if at is None else _moment(at))
    statements = snapshots.views(selected, folder) if as_views else []
    values = {**asdict(selected), **({"sql": statements} if as_views else {})}
    common.out.result(values, "\n".join(statements) if as_views else _snapshot_text(selected))


def _moment(text: str) -> "int | datetime":
    """Parses a sync's number, or a time in ISO 8601 (in UTC without a zone)."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        msg = f"{text!r} is neither a sync's number nor a time like 2026-01-31T12:00:00Z"
        raise typer.BadParameter(msg, param_hint="--at") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def _snapshot_text(snapshot: "Snapshot") -> str:
    tables = ", ".join(f"{topic} version {version}" for topic, version in snapshot.versions.items())
    return f"sync {snapshot.sync:,} ({snapshot.at:%Y-%m-%dT%H:%M:%S.%f}Z): {tables}"


def _progress_text(delivered: "Delivered") -> str:
    rows = ", ".join(f"{topic} {count:,}" for topic, count in delivered.rows.items()) or "none"
    through = f"; through seqno {delivered.seqno:,}" if delivered.seqno else ""  # unknown if no broker answered
    return f"delivered {amount(delivered.transactions, 'transaction')}, rows: {rows}{through}"
