"""The command line: typed options, one call into the library, one call to output."""

import os
import signal
import sys
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NoReturn

import typer

from zync import cli_broker, cli_deliver, cli_run, cli_tables, cli_txn
from zync.errors import INTERRUPTED, ZyncError
from zync.ingest import memory
from zync.options import (
    AsJson,
    CommitBytes,
    CommitEvery,
    ConfigFile,
    Debug,
    Lake,
    LogFormat,
    MaxMemory,
    Metrics,
    debugging,
    measuring,
    partition_offset,
    read_config,
    starting_point,
    stop_on_signals,
)
from zync.output import Output, Verbatim, amount, byte_size, describe, logs_as_json
from zync.places import locate

if TYPE_CHECKING:
    from zync.ingest.append import Appended

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="""Lands the transactions of Kafka topics in a lake whole, exactly once.

    \b
    zync init                     a config and an example rule
    zync sync-from kafka raw      Kafka records to the raw table
    zync sync raw staging         raw records to whole transactions
    zync sync-to kafka staging    whole transactions to Kafka topics
    zync run                      all of that, as the config says
    zync cat staging              what is there
    zync txn list                 what is not done, and why
    """,
)
app.add_typer(cli_txn.txn, name="txn")
app.add_typer(cli_txn.dlq, name="dlq")
app.command("sync-to")(cli_deliver.sync_to)
app.command()(cli_deliver.snapshot)
app.command()(cli_run.run)
app.command()(cli_tables.replay)
app.command()(cli_tables.diff)
app.command()(cli_tables.verify)
app.command()(cli_tables.maintain)
app.add_typer(cli_broker.app, name="broker")


_WATCH_SECONDS = 2
_BUILT_ON = ("pyspark", "delta-spark", "deltalake", "confluent-kafka")


def _version(asked: bool) -> None:
    """`--version`: zync's, and those of what it is built on, as a report of a problem needs them."""
    if asked:
        from importlib.metadata import version

        typer.echo(f"zync {version('zync')} ({', '.join(f'{name} {version(name)}' for name in _BUILT_ON)})")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the versions and end.")
    ] = False,
) -> None:
    """What may stand before a subcommand."""


def main() -> None:
    """Runs the command line. Exit codes: 0 done, 1 failed, 2 the user's mistake, 3 another writer owns the table."""
    signal.signal(signal.SIGINT, _interrupt)
    try:
        app()
    except ZyncError as error:
        if debugging():
            raise
        Output().error(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        if debugging():
            raise
        from zync.spark_errors import message_of

        said = message_of(error) if "pyspark" in sys.modules else next(iter(str(error).splitlines()), "")
        Output().error(f"unexpected {type(error).__name__}: {said} (--debug)")
        sys.exit(1)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Ctrl-C. Once Spark runs, it ends the process at once, and with it the JVM, which tidies up.

    An exception would leave PySpark's connection with an answer nobody waits for, and whatever is called next, to
    clean up, would take it for its own.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context and context._active_spark_context:  # noqa: SLF001 - there is no other way to ask
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt


@app.command("sync-from")
def sync_from(
    source: Annotated[Literal["kafka"], typer.Argument(help="Where from.")],
    table: Annotated[str, typer.Argument(help="The table to append to, usually raw.")],
    topic: Annotated[list[str] | None, typer.Option(help="A name or ^regex; repeatable.")] = None,
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
    log_format: LogFormat = "text",
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Append Kafka records to raw, exactly once, until stopped.

    \b
    zync sync-from kafka raw --topic order --topic menu --until-caught-up
    zync sync-from kafka raw --topic '^shop\\..*' --commit-every 1s
    zync sync-from kafka raw --from 2026-01-31T12:00:00Z --from-offset order:0=1200
    """
    from zync.ingest.batch import Source
    from zync.ingest.begin import Begin
    from zync.ingest.consume import Ingest, sync_from_kafka

    if force and start is None and not from_offset:
        msg = "it is for --from and --from-offset"
        raise typer.BadParameter(msg, param_hint="--force")
    offsets = {Source(*at[:2]): at[2] for at in map(partition_offset, from_offset or ())}

    settings, out = read_config(config, lake), Output(as_json=as_json)
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

    def committed(one: "Appended") -> None:
        out.progress(
            f"committed {amount(one.rows, 'record')} ({byte_size(one.num_bytes)}) from seqno {one.first_seqno}",
            event="commit",
            records=one.rows,
            bytes=one.num_bytes,
            first_seqno=one.first_seqno,
            seconds=round(one.seconds, 3),
        )
        if measured:
            measured.committed(one)

    with measuring("zync.metrics:IngestMetrics", metrics, out) as measured:
        done = sync_from_kafka(ingest, stop_on_signals(), committed, measured)
    rate = done.records / done.seconds if done.seconds else 0.0
    lag = "unknown" if done.lag is None else f"{done.lag:,}"
    out.result(
        {"bytes" if key == "num_bytes" else key: value for key, value in vars(done).items()} | {"rate": round(rate)},
        f"{amount(done.records, 'record')}, {byte_size(done.num_bytes)} in {done.seconds:.1f} s "
        f"({rate:,.0f} records/s), {amount(done.commits, 'commit')}, lag {lag}",
    )


@app.command()
def load(
    table: Annotated[str, typer.Argument(help="The table to append to, usually raw.")],
    files: Annotated[list[str], typer.Argument(help="JSON Lines; .gz too; - is standard input.")],
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Append records from JSON Lines to raw, as one commit.

    \b
    zync load raw records.jsonl
    echo '{"topic":"t","value":{"txn":1}}' | zync load raw -
    """
    from zync.ingest.load import load as load_files

    done = load_files(locate(table, read_config(config, lake).lake), files)
    last = (done.first_seqno or 1) + done.rows - 1
    Output(as_json=as_json).result(
        {"records": done.rows, "bytes": done.num_bytes, "first_seqno": done.first_seqno},
        f"loaded {amount(done.rows, 'record')}" + (f", seqno {done.first_seqno} to {last}" if done.rows else ""),
    )


@app.command()
def sync(
    raw: Annotated[str, typer.Argument(help="The table to read, usually raw.")],
    staging: Annotated[str, typer.Argument(help="The table to write, usually staging.")],
    follow: Annotated[bool, typer.Option("--follow", help="Go on whenever there is something new.")] = False,
    master: Annotated[str | None, typer.Option(help="Spark's master; default the config's, or local[2].")] = None,
    metrics: Metrics = None,
    log_format: LogFormat = "text",
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Re-aggregate raw's records into transactions, and commit those that are whole to staging.

    \b
    zync sync raw staging
    zync sync raw staging --follow
    """
    from zync import sync as engine

    settings, out = read_config(config, lake, needed=True), Output(as_json=as_json)
    where = locate(raw, settings.lake), locate(staging, settings.lake)
    if not follow:
        if metrics:
            msg = "there is nothing to watch in one sync: give --follow too"
            raise typer.BadParameter(msg, param_hint="--metrics")
        done = engine.sync_once(settings, *where, master=master)
        out.result(vars(done), describe(done))
        return
    stop = stop_on_signals()

    def told(done: engine.Outcome) -> None:
        if logs_as_json() and not as_json:
            out.progress(describe(done), event="sync", **vars(done))
        else:
            out.result(vars(done), describe(done))

    with measuring("zync.metrics:SyncMetrics", metrics, out) as measured:
        engine.follow(settings, *where, stop, told, master, measured)


@app.command()
def cat(
    table: Annotated[str, typer.Argument(help="raw or staging.")],
    kind: Annotated[str | None, typer.Option(help="Only rows of that kind (staging).")] = None,
    topic: Annotated[str | None, typer.Option(help="Only rows of that topic.")] = None,
    since: Annotated[int, typer.Option(help="From that seqno on.", metavar="SEQNO")] = 1,
    limit: Annotated[int | None, typer.Option(min=0, help="At most so many rows.")] = None,
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show a table's rows as JSON Lines, in order of seqno, without starting Spark.

    \b
    zync cat staging --kind output --topic order
    zync cat raw --since 1000 --limit 10
    """
    from zync.cat import cat as read

    location = locate(table, read_config(config, lake).lake)
    Output(as_json=as_json).rows(read(location, kind=kind, topic=topic, since=since, limit=limit))


@app.command()
def query(
    text: Annotated[str, typer.Argument(metavar="SELECT", help="One Spark SQL query.")],
    consistent: Annotated[
        bool, typer.Option("--consistent", help="Over the delivered tables, at versions that belong together.")
    ] = False,
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Run Spark SQL over raw, staging, and the views that rules see; or over the delivered tables.

    \b
    zync query "SELECT kind, count(*) FROM staging GROUP BY kind"
    zync query --consistent "SELECT sum(balance) FROM accounts"
    """
    from zync import query as engine
    from zync.spark import session

    settings, out = read_config(config, lake), Output(as_json=as_json)
    ask = engine.query_tables if consistent else engine.query
    result = ask(session(None, settings.spark, brief=True), settings, text)
    if as_json:
        out.rows(Verbatim(row) for row in engine.rows_of(result))
    else:
        out.result({}, engine.table_of(result))


@app.command()
def status(
    watch: Annotated[bool, typer.Option("--watch", help="Show it again every two seconds, until stopped.")] = False,
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Show how far raw and staging are, what is in flight and set aside, and the lag behind Kafka.

    \b
    zync status
    zync status --watch
    """
    from zync import status as engine

    settings, out = read_config(config, lake), Output(as_json=as_json)
    stop = stop_on_signals() if watch else None
    while True:
        found = engine.status(locate("raw", settings.lake), locate("staging", settings.lake), settings)
        if watch:
            out.clear()
        out.result(engine.as_dict(found), engine.describe(found))
        if stop is None or stop.wait(_WATCH_SECONDS):
            return


@app.command()
def explain(config: ConfigFile = None, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show the pipeline of the config: topics, ids, done, and each rule with its output's columns and types."""
    from dataclasses import asdict

    from zync.etl import explain as engine
    from zync.spark import session

    settings = read_config(config, None, needed=True)
    pipeline = engine.explain(session(None, settings.spark, brief=True), settings)
    Output(as_json=as_json).result(asdict(pipeline), engine.describe(pipeline))


@app.command()
def check(
    data: Annotated[str | None, typer.Option(metavar="TABLE", help="Also sync this raw in different cuts.")] = None,
    lake: Lake = None,
    config: ConfigFile = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Check the config and its rules without touching data.

    \b
    zync check
    zync check --data raw     do the rules give the same output when raw is cut otherwise?
    """
    from zync.check import compare_cuts
    from zync.etl.explain import explain as read
    from zync.spark import session

    settings, out = read_config(config, lake, needed=True), Output(as_json=as_json)
    spark = session(None, settings.spark, brief=True)
    found = read(spark, settings)
    different = compare_cuts(spark, settings, locate(data, settings.lake)) if data else None
    lines = [*(f"warning: {text}" for text in found.warnings)]
    if different:
        lines.append(
            f"{different.topic}/{different.offset} depends on how raw is cut: {different.at_once} in one sync, "
            f"{different.in_parts} in several; a rule must make of a transaction what only that transaction says"
        )
    lines += (
        []
        if different
        else ["the config and its rules can run" + (f", and {data} gives the same in any cut" * bool(data))]
    )
    out.result(
        {"ok": not different, "warnings": found.warnings, "difference": different and vars(different)}, "\n".join(lines)
    )
    sys.exit(1 if different else 0)


@app.command()
def init(folder: Annotated[Path, typer.Argument()] = Path(), as_json: AsJson = False) -> None:
    """Write a commented zync.yaml and an example rule into a folder."""
    from zync.init import init as write

    files = [str(path) for path in write(folder)]
    Output(as_json=as_json).result({"files": files}, f"wrote {', '.join(files)}; next: zync check")


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="It stays.")] = Path("zync-demo"),
    what: Annotated[
        Literal["bank", "postgres", "orders"],
        typer.Option(help="A bank, live; the same on a real PostgreSQL and Debezium; two orders, step by step."),
    ] = "bank",
    seconds: Annotated[float, typer.Option(min=1, help="How long to watch the bank.")] = 40,
    debug: Debug = False,
) -> None:
    """Show on a real Kafka how disaggregated transactions land whole."""
    from zync.demo import demo as play

    out = Output()
    play(folder, what, seconds, lambda line: out.result({}, line))
