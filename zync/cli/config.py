"""The command `zync config`, which prints the config's JSON Schema."""

import typer

from zync.cli.console import ConsoleOutput

app = typer.Typer(no_args_is_help=True, help="Show what a config may have.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of zync.yaml, by which editors complete and check it.

    \b
    zync config schema > zync.schema.json
    """
    from zync.project.schema import config_schema_text

    ConsoleOutput().text(config_schema_text().rstrip())
