"""The commands of `zync broker`, the development broker."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from zync.cli.common import AsJson, output
from zync.cli.console import ConsoleOutput

app = typer.Typer(no_args_is_help=True, help="A real single-node Kafka, for development and tests only.")

BrokerFolder = Annotated[Path, typer.Option("--folder", help="Its data and logs.")]
_BROKER_FOLDER = Path(".zync/broker")


@app.command("start")
def broker_start(
    port: Annotated[int | None, typer.Option(help="Default: a free one.")] = None,
    folder: BrokerFolder = _BROKER_FOLDER,
    as_json: AsJson = False,
) -> None:
    """Start the development broker in the background; returns once it answers.

    \b
    zync broker start
    zync broker start --port 9092
    """
    from zync.kafka.dev_broker import DevKafka

    output(as_json=as_json).broker_started(DevKafka(folder.absolute()).start(port), folder)


@app.command("run")
def broker_run(
    port: Annotated[int | None, typer.Option(help="Default: a free one.")] = None, folder: BrokerFolder = _BROKER_FOLDER
) -> None:
    """Run the development broker in the foreground."""
    from zync.kafka.dev_broker import DevKafka

    ConsoleOutput().progress("a Kafka for development only: one node, no security; Ctrl-C ends it")
    sys.exit(DevKafka(folder.absolute()).run(port))


@app.command("stop")
def broker_stop(folder: BrokerFolder = _BROKER_FOLDER, as_json: AsJson = False) -> None:
    """End the development broker cleanly."""
    from zync.kafka.dev_broker import DevKafka

    output(as_json=as_json).broker_stopped(stopped=DevKafka(folder.absolute()).stop(), folder=folder)


@app.command("status")
def broker_status(folder: BrokerFolder = _BROKER_FOLDER, as_json: AsJson = False) -> None:
    """Whether the development broker runs, and where."""
    from zync.kafka.dev_broker import DevKafka

    broker = DevKafka(folder.absolute())
    pid = broker.pid()
    output(as_json=as_json).broker_status(broker.servers() if pid else None, pid, folder)
