"""The command line. Each command reads its options, calls the library, and prints the result."""

import os
import signal
import sys
import traceback
from typing import Annotated, NoReturn

import typer

from zync.cli import broker, completion, config, deliver, inspect, maintenance, pipeline, setup, txn
from zync.cli.console import ConsoleOutput
from zync.cli.options import READ, as_written, debugging
from zync.errors import INTERRUPTED, ZyncError

app = typer.Typer(
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
for command in (
    setup.init,
    pipeline.sync_from,
    pipeline.load,
    pipeline.sync,
    deliver.sync_to,
    pipeline.run,
    inspect.status,
    inspect.cat,
    inspect.query,
    deliver.snapshot,
    inspect.explain,
    inspect.check,
    inspect.doctor,
    maintenance.verify,
    maintenance.replay,
    maintenance.diff,
    maintenance.maintain,
    setup.demo,
):
    app.command()(command)
app.add_typer(txn.txn, name="txn")
app.add_typer(txn.dlq, name="dlq")
app.add_typer(config.app, name="config")
app.add_typer(broker.app, name="broker")

_DEPENDENCIES = ("pyspark", "delta-spark", "deltalake", "confluent-kafka")


def _version(requested: bool) -> None:
    """`--version`: prints the versions of zync and of its main dependencies, which a bug report needs."""
    if requested:
        from importlib.metadata import version

        typer.echo(f"zync {version('zync')} ({', '.join(f'{name} {version(name)}' for name in _DEPENDENCIES)})")
        raise typer.Exit


@app.callback()
def before_the_command(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the versions and end.")
    ] = False,
) -> None:
    """What may stand before a subcommand."""


def main() -> None:
    """Runs the command line.

    Exit codes: 0 for success, 1 for a failure, 2 for the user's mistake, 3 if another writer owns the table,
    4 if a table was deleted or replaced while zync used it.
    """
    signal.signal(signal.SIGINT, _interrupt)
    READ.clear()
    if completion.is_asked():
        completion.answer(app)
    try:
        app()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - the last handler, which prints any error for the user
        kind = type(error) if isinstance(error, ZyncError) else ZyncError
        trace = as_written(traceback.format_exc()) if debugging() else ""
        ConsoleOutput().error(as_written(_error_text(error)), trace, kind.code)
        sys.exit(kind.exit_code)


def _error_text(error: Exception) -> str:
    if isinstance(error, ZyncError):
        return str(error)
    from zync.lake.store_errors import meaning

    if store_error := meaning(str(error)):
        return store_error
    text = next(iter(str(error).splitlines()), "")
    if "pyspark" in sys.modules:
        from zync.spark.errors import message_of

        text = message_of(error)
    if "parquet" in text.lower() and (isinstance(error, FileNotFoundError) or type(error).__name__ == "ArrowInvalid"):
        return f"a table's file is gone or damaged: {text}. `zync verify` tells which are"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return f"unexpected {type(error).__name__}: {text} (--debug)"


def _interrupt(_number: int, _frame: object) -> NoReturn:
    """Handles Ctrl-C. While Spark runs, it ends the process at once, and with it the JVM, which cleans up.

    An exception would leave an unread answer in PySpark's connection, and the next call, in a clean-up, would take it
    for its own.
    """
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    if context and context._active_spark_context:  # noqa: SLF001 - PySpark has no public way
        os._exit(INTERRUPTED)
    raise KeyboardInterrupt
