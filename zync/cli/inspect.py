"""The commands that only read: tables, the config, and a connector's settings."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from zync.cli.common import Common, common_options
from zync.cli.completion import kinds, tables, topics
from zync.cli.options import stop_on_signals
from zync.errors import UsageError
from zync.lake.paths import locate

_WATCH_SECONDS = 2


@common_options()
def cat(
    common: Common,
    table: Annotated[str, typer.Argument(help="raw or staging.", autocompletion=tables)],
    kind: Annotated[str | None, typer.Option(help="Only rows of that kind (staging).", autocompletion=kinds)] = None,
    topic: Annotated[str | None, typer.Option(help="Only rows of that topic.", autocompletion=topics)] = None,
    since: Annotated[int, typer.Option(help="From that seqno on.", metavar="SEQNO")] = 0,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows.")] = None,
) -> None:
    """Show a table's rows as JSON Lines, in order of seqno. Without starting Spark.

    \b
    zync cat staging --kind output --topic order
    zync cat raw --since 1000 --limit 10
    """
    from zync.operate.cat import cat as read

    location = locate(table, common.read_config().lake)
    common.out.rows(read(location, kind=kind, topic=topic, since=since, limit=limit))


@common_options()
def query(
    common: Common,
    text: Annotated[str, typer.Argument(metavar="SELECT", help="One Spark SQL query.")],
    consistent: Annotated[
        bool, typer.Option("--consistent", help="Over the delivered tables, at versions that belong together.")
    ] = False,
) -> None:
    """Run Spark SQL over raw, staging and the views that rules see. Or over the delivered tables.

    \b
    zync query "SELECT kind, count(*) FROM staging GROUP BY kind"
    zync query --consistent "SELECT sum(balance) FROM accounts"
    """
    from zync.operate.query import query as query_staging
    from zync.operate.query import query_tables
    from zync.spark.session import session

    settings = common.read_config()
    run_query = query_tables if consistent else query_staging
    common.out.spark_starts()
    common.out.query(run_query(session(None, settings.spark, brief=True, lake=settings.lake), settings, text))


@common_options()
def status(
    common: Common,
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until stopped.")] = False,
) -> None:
    """Show how far raw and staging are, and the lag behind Kafka. And what is in flight, and set aside.

    \b
    zync status
    zync status --watch
    """
    from zync.operate.status import status as read_status

    settings, out = common.read_config(), common.out
    stop = stop_on_signals() if watch else None
    while True:
        current = read_status(locate("raw", settings.lake), locate("staging", settings.lake), settings)
        if watch:
            out.clear()
        out.status(current)
        if stop is None or stop.wait(_WATCH_SECONDS):
            return


@common_options(lake=False)
def explain(common: Common) -> None:
    """Show what the config means. Topics, ids, done, and each rule with its output's columns and types.

    \b
    zync explain
    zync explain --config shop/zync.yaml --json
    """
    from zync.operate.explain import explain as analyze
    from zync.spark.session import session

    settings = common.read_config(needed=True)
    common.out.spark_starts()
    common.out.explain(analyze(session(None, settings.spark, brief=True, lake=settings.lake), settings))


@common_options()
def check(
    common: Common,
    data: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Also sync this raw in different cuts.", autocompletion=tables)
    ] = None,
) -> None:
    """Check the config and its rules without touching data.

    \b
    zync check
    zync check --data raw     do the rules give the same output when raw is cut otherwise?
    """
    from zync.operate.check import check as check_config

    settings = common.read_config(needed=True)
    common.out.spark_starts()
    checked = check_config(settings, locate(data, settings.lake) if data else None)
    common.out.check(checked, data)
    sys.exit(1 if checked.difference else 0)


@common_options(lake=False)
def doctor(
    common: Common,
    connect: Annotated[str | None, typer.Option(metavar="URL", help="Kafka Connect's REST API.")] = None,
    connector: Annotated[str | None, typer.Option(metavar="NAME", help="The connector there.")] = None,
    connector_config: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The connector's config, as .json or .properties.")
    ] = None,
) -> None:
    """Say what will hurt, in a connector's config and in the topics. Exit code 1 if something will.

    \b
    zync doctor --connect http://localhost:8083 --connector shop
    zync doctor --connector-config shop.json
    zync doctor                               only the topics that the config reads
    """
    from zync.operate.diagnosis import examine
    from zync.operate.doctor import hurts

    if (connect is None) != (connector is None):
        msg = "--connect and --connector go together: the address of Kafka Connect, and the connector's name there"
        raise UsageError(msg)
    if connect and connector_config:
        msg = "--connect and --connector-config both name a connector's config: give one of them"
        raise UsageError(msg)
    settings = common.read_config()
    if not (connector_config or (connect and connector) or settings.kafka.get("bootstrap.servers")):
        msg = (
            "nothing to look at: give --connect and --connector, or --connector-config, or name Kafka in the config "
            "(kafka.bootstrap.servers)"
        )
        raise UsageError(msg)
    diagnosis = examine(settings, connect, connector, connector_config)
    common.out.diagnosis(diagnosis)
    sys.exit(1 if hurts(diagnosis.findings) else 0)
