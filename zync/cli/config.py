"""The command `zync config`, which prints the config's JSON Schema."""

import typer

from zync.cli.output import Output

app = typer.Typer(no_args_is_help=True, help="Show what a config may have.")


@app.command()
def schema() -> None:
    """Print the JSON Schema of zync.yaml, by which editors complete and check it.

    \b
    zync config schema > zync.schema.json
    """
    from zync.project.schema import config_schema, config_schema_text

    Output().result(config_schema(), config_schema_text().rstrip())
