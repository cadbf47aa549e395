"""The commands that take staging on to the outside."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from zync.options import (
    AsJson,
    ConfigFile,
    Debug,
    Lake,
    LogFormat,
    Metrics,
    measuring,
    read_config,
    stop_on_signals,
)
from zync.output import Output, amount
from zync.places import locate

if TYPE_CHECKING:
    from zync.deliver.kafka import Delivered

_GROUP_ROWS = 50_000


def sync_to(
    target: Annotated[Literal["kafka"], typer.Argument(help="Where to.")],
    table: Annotated[str, typer.Argument(help="The table to deliver, usually staging.")],
    until_caught_up: Annotated[bool, typer.Option(help="End when all is there that is in staging now.")] = False,
    group_rows: Annotated[
        int | None,
        typer.Option(min=1, help=f"Rows, of whole transactions, in a Kafka transaction; {_GROUP_ROWS:,} by default."),
    ] = None,
    one_by_one: Annotated[bool, typer.Option("--one-by-one", help="Each in a Kafka transaction of its own.")] = False,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Over the config's.")] = None,
    metrics: Metrics = None,
    log_format: LogFormat = "text",
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Send staging's output rows on, whole transactions, exactly once, until stopped.

    \b
    zync sync-to kafka staging
    zync sync-to kafka staging --until-caught-up --one-by-one
    """
    from zync.deliver.kafka import Delivery, sync_to_kafka

    if one_by_one and group_rows:
        msg = "it is for all transactions but --one-by-one: give one of the two"
        raise typer.BadParameter(msg, param_hint="--group-rows")
    settings, out = read_config(config, lake), Output(as_json=as_json)
    servers = {"bootstrap.servers": bootstrap_servers} if bootstrap_servers else {}
    delivery = Delivery(
        staging=locate(table, settings.lake),
        kafka={**settings.kafka_to_deliver_to, **servers},
        config=settings,
        group_rows=1 if one_by_one else group_rows or _GROUP_ROWS,
        until_caught_up=until_caught_up,
    )

    def committed(done: "Delivered") -> None:
        out.progress(_said(done), event="delivered", **asdict(done))

    with measuring("DeliveryMetrics", metrics) as measured:
        done = sync_to_kafka(delivery, stop_on_signals(), committed, measured)
    rate = sum(done.rows.values()) / done.seconds if done.seconds else 0.0
    out.result(
        asdict(done) | {"rate": round(rate)},
        f"{_said(done)}, in {amount(done.commits, 'Kafka transaction')}, {done.seconds:.1f} s ({rate:,.0f} rows/s)",
    )


def _said(done: "Delivered") -> str:
    rows = ", ".join(f"{topic} {count:,}" for topic, count in done.rows.items()) or "none"
    return f"delivered {amount(done.transactions, 'transaction')}, rows: {rows}; through seqno {done.seqno:,}"
