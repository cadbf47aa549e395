"""The commands for first steps: `zync init` and `zync demo`."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from zync.cli.common import AsJson, Debug, output
from zync.cli.console import ConsoleOutput


def init(folder: Annotated[Path, typer.Argument()] = Path(), as_json: AsJson = False) -> None:
    """Write a commented zync.yaml and an example rule into a folder. And zync.schema.json, for editors.

    \b
    zync init
    zync init shop
    """
    from zync.project.template import init as write

    output(as_json=as_json).initialized([str(path) for path in write(folder)])


def demo(
    folder: Annotated[Path, typer.Argument(help="It stays.")] = Path("zync-demo"),
    what: Annotated[
        Literal["bank", "postgres", "orders"],
        typer.Option(help="A bank, live; the same on a real PostgreSQL and Debezium; two orders, step by step."),
    ] = "bank",
    seconds: Annotated[float, typer.Option(min=1, help="How long to watch the bank.")] = 40,
    debug: Debug = False,
) -> None:
    """Show on a real Kafka how disaggregated transactions land whole.

    \b
    zync demo
    zync demo --what orders
    """
    from zync.demo import demo as play

    play(folder, what, seconds, ConsoleOutput().text)
