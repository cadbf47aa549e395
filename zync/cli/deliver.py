"""The commands that deliver staging's rows to Kafka and to tables."""

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zync.cli.common import Common, common_options
from zync.cli.completion import tables
from zync.cli.options import Metrics, Standby, measuring, stop_on_signals
from zync.cli.output import Output
from zync.config.units import moment
from zync.lake.paths import locate

if TYPE_CHECKING:
    from zync.config.model import Config

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
    standby: Standby = False,
    metrics: Metrics = None,
) -> None:
    """Send staging's rows on, in whole transactions, exactly once. Goes on until stopped.

    \b
    zync sync-to kafka staging
    zync sync-to kafka staging --until-caught-up --one-by-one
    zync sync-to tables staging
    zync sync-to tables staging --standby
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
        _to_tables(
            settings,
            out,
            locate(table, settings.lake),
            master,
            metrics,
            until_caught_up=until_caught_up,
            standby=standby,
        )
        return
    from zync.deliver.kafka.delivery import Delivery, sync_to_kafka

    servers = {"bootstrap.servers": bootstrap_servers} if bootstrap_servers else {}
    delivery = Delivery(
        staging=locate(table, settings.lake),
        kafka={**settings.kafka_to_deliver_to, **servers},
        config=settings,
        group_rows=1 if one_by_one else group_rows or _GROUP_ROWS,
        until_caught_up=until_caught_up,
        standby=standby,
    )

    with measuring("zync.deliver.metrics:KafkaDeliveryMetrics", metrics, out) as collector:
        delivered = sync_to_kafka(delivery, stop_on_signals(), out.delivered_so_far, collector)
    out.delivered(delivered)


def _to_tables(  # noqa: PLR0913 - the command's options
    settings: "Config",
    out: Output,
    staging: str,
    master: str | None,
    metrics: str | None,
    *,
    until_caught_up: bool,
    standby: bool,
) -> None:
    from zync.deliver.tables import delivery, snapshots
    from zync.spark.session import session

    stop = stop_on_signals()
    folder = locate(snapshots.FOLDER, settings.lake)
    with measuring("zync.deliver.metrics:DeliveryMetrics", metrics, out) as collector:
        newest = delivery.sync_to_tables(
            partial(session, master, settings.spark, brief=until_caught_up, lake=settings.lake),
            settings,
            staging,
            folder,
            stop,
            out.delivered_batch,
            collector,
            until_caught_up=until_caught_up,
            standby=standby,
        )
    out.delivered_snapshot(newest)


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
    common.out.snapshot(selected, snapshots.views(selected, folder) if as_views else None)


def _moment(text: str) -> "int | datetime":
    """Parses a sync's number, or a time in ISO 8601 (in UTC without a zone)."""
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return moment(text)
    except ValueError:
        msg = f"{text!r} is neither a sync's number nor a time like 2026-01-31T12:00:00Z"
        raise typer.BadParameter(msg, param_hint="--at") from None
