"""The options that most commands have, like `--config` and `--json`: one decorator adds them."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, Concatenate, Literal

import typer

from zync.cli.console import ConsoleOutput
from zync.cli.json_output import JsonOutput
from zync.cli.options import debug_option, log_format_option, read_config
from zync.cli.output import Output
from zync.config.model import Config

Lake = Annotated[str | None, typer.Option("--lake", envvar="ZYNC_LAKE", help="Folder or URI of the tables.")]
ConfigFile = Annotated[Path | None, typer.Option("--config", envvar="ZYNC_CONFIG", help="Default zync.yaml.")]
AsJson = Annotated[bool, typer.Option("--json", help="Results as JSON, for programs.")]
Debug = Annotated[
    bool, typer.Option("--debug", help="Tracebacks and details on errors.", callback=lambda on: debug_option(on=on))
]
LogFormat = Annotated[
    Literal["text", "json"],
    typer.Option(help="Of the lines on standard error.", callback=log_format_option),
]


def output(*, as_json: bool) -> Output:
    """Returns what prints a command's results, with or without `--json`."""
    return JsonOutput() if as_json else ConsoleOutput()


@dataclass(frozen=True)
class Common:
    """The values of a command's common options, with the defaults of those that it does not have.

    Those of `--log-format` and `--debug` are not among them: their callbacks act on them.

    Attributes:
        lake: `--lake`.
        config: `--config`.
        as_json: `--json`.
    """

    lake: str | None = None
    config: Path | None = None
    as_json: bool = False

    @property
    def out(self) -> Output:
        """What prints the command's results."""
        return output(as_json=self.as_json)

    def read_config(self, *, needed: bool = False) -> Config:
        """Reads the config that the options select, as `options.read_config` does."""
        return read_config(self.config, self.lake, needed=needed)


def common_options(
    *, log_format: bool = False, lake: bool = True, as_json: bool = True
) -> Callable[[Callable[Concatenate[Common, ...], None]], Callable[..., None]]:
    """Returns a decorator that adds the common options to a command, after its own.

    The command gets their values as its first argument. Typer makes options of a function's signature, so the
    decorated function has a signature with both.

    Args:
        log_format: Whether the command has `--log-format`.
        lake: Whether it has `--lake`.
        as_json: Whether it has `--json`. All have `--config` and `--debug`.
    """
    options: dict[str, tuple[Any, Any]] = {
        **({"log_format": (LogFormat, "text")} if log_format else {}),
        **({"lake": (Lake, None)} if lake else {}),
        "config": (ConfigFile, None),
        **({"as_json": (AsJson, False)} if as_json else {}),
        "debug": (Debug, False),
    }
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option)
        for name, (option, default) in options.items()
    ]

    def decorate(command: Callable[Concatenate[Common, ...], None]) -> Callable[..., None]:
        @wraps(command)
        def run(**values: Any) -> None:
            given = {name: values.pop(name) for name in options}
            common = {field.name: given[field.name] for field in fields(Common) if field.name in given}
            command(Common(**common), **values)

        signature = inspect.signature(command)
        _, *own = signature.parameters.values()
        merged = signature.replace(parameters=[*own, *parameters])
        run.__signature__ = merged  # type: ignore[attr-defined]
        run.__annotations__ = {name: parameter.annotation for name, parameter in merged.parameters.items()}
        return run

    return decorate
