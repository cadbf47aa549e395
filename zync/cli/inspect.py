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
from zync.text import Verbatim

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
    from zync.operate.query import query_tables, rows_of, table_of
    from zync.spark.session import session

    settings, out = common.read_config(), common.out
    run_query = query_tables if consistent else query_staging
    result = run_query(session(None, settings.spark, brief=True, lake=settings.lake), settings, text)
    if common.as_json:
        out.rows(Verbatim(row) for row in rows_of(result))
    else:
        out.result({}, table_of(result))


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
    from zync.operate.status import as_dict, describe
    from zync.operate.status import status as read_status

    settings, out = common.read_config(), common.out
    stop = stop_on_signals() if watch else None
    while True:
        current = read_status(locate("raw", settings.lake), locate("staging", settings.lake), settings)
        if watch:
            out.clear()
        out.result(as_dict(current), describe(current))
        if stop is None or stop.wait(_WATCH_SECONDS):
            return


@common_options(lake=False)
def explain(common: Common) -> None:
    """Show what the config means. Topics, ids, done, and each rule with its output's columns and types.

    \b
    zync explain
    zync explain --config shop/zync.yaml --json
    """
    from dataclasses import asdict

    from zync.operate.explain import describe
    from zync.operate.explain import explain as explained
    from zync.spark.session import session

    settings = common.read_config(needed=True)
    pipeline = explained(session(None, settings.spark, brief=True, lake=settings.lake), settings)
    common.out.result(asdict(pipeline), describe(pipeline))


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
    from concurrent.futures import ThreadPoolExecutor

    from zync.operate.check import compare_cuts
    from zync.operate.explain import explain as read
    from zync.operate.surroundings import warnings as warnings_of
    from zync.spark.session import session

    settings, out = common.read_config(needed=True), common.out
    with ThreadPoolExecutor(1) as executor:  # runs while Spark starts, which takes longer
        surroundings = executor.submit(warnings_of, settings)
        spark = session(None, settings.spark, brief=True, lake=settings.lake)
        pipeline = read(spark, settings)
        warnings = [*pipeline.warnings, *surroundings.result()]
    difference = compare_cuts(spark, settings, locate(data, settings.lake)) if data else None
    lines = [*(f"warning: {text}" for text in warnings)]
    if difference:
        lines.append(
            f"{difference.topic}/{difference.offset} depends on how raw is cut: {difference.at_once} in one sync, "
            f"{difference.in_parts} in several; a rule must make of a transaction what only that transaction says"
        )
    lines += (
        []
        if difference
        else ["the config and its rules can run" + (f", and {data} gives the same in any cut" * bool(data))]
    )
    out.result(
        {"ok": not difference, "warnings": warnings, "difference": difference and vars(difference)}, "\n".join(lines)
    )
    sys.exit(1 if difference else 0)


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
    from zync.kafka.admin import Brokers
    from zync.operate import connector_config as read
    from zync.operate.doctor import TopicSettings, as_dict, describe, diagnose, hurts, read_topics

    if (connect is None) != (connector is None):
        msg = "--connect and --connector go together: the address of Kafka Connect, and the connector's name there"
        raise UsageError(msg)
    if connect and connector_config:
        msg = "--connect and --connector-config both name a connector's config: give one of them"
        raise UsageError(msg)
    settings = common.read_config()
    connector_settings = read.from_file(connector_config) if connector_config else None
    if connect and connector:
        connector_settings = read.from_connect(connect, connector)
    topics = None
    if settings.kafka.get("bootstrap.servers"):
        brokers = Brokers(settings.kafka)
        partitions = brokers.topics()
        names = read_topics(settings, partitions)
        properties = brokers.topic_properties(names)
        topics = {name: TopicSettings(partitions[name], properties.get(name, {})) for name in names}
    if connector_settings is None and topics is None:
        msg = (
            "nothing to look at: give --connect and --connector, or --connector-config, or name Kafka in the config "
            "(kafka.bootstrap.servers)"
        )
        raise UsageError(msg)
    subjects = [
        *(["the connector's config"] if connector_settings is not None else []),
        *(["the topics"] if topics is not None else []),
    ]
    findings = diagnose(connector_settings, topics, settings)
    common.out.result(as_dict(findings), describe(findings, " and ".join(subjects)))
    sys.exit(1 if hurts(findings) else 0)
