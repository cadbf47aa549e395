"""`zync run`: the whole pipeline in one command."""

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zync.config import duration
from zync.options import ConfigFile, Debug, Lake, LogFormat, Metrics, measuring, parsed, read_config, stop_on_signals
from zync.output import Output, logs_as_json
from zync.places import locate

if TYPE_CHECKING:
    from collections.abc import Mapping


def run(
    commit_every: Annotated[str | None, typer.Option(metavar="TIME", help="Of sync-from; default 5s.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Over the config's.")] = None,
    metrics: Metrics = None,
    log_format: LogFormat = "text",
    lake: Lake = None,
    config: ConfigFile = None,
    debug: Debug = False,
) -> None:
    """Run all that the config says, each part a process: sync-from, sync --follow, and what `deliver` names.

    On a terminal it shows how they do. A part that dies is started again. Ctrl-C stops all of them.

    \b
    zync run
    zync run --commit-every 500ms --metrics localhost:9464
    """
    from zync.run import pipeline
    from zync.staging.commit import owned

    if commit_every is not None:
        parsed(duration, commit_every)  # here, or the part would fail on it time and again
    settings, out = read_config(config, lake, needed=True), Output()
    given = {
        "--config": str(config.absolute()) if config else None,
        "--bootstrap-servers": bootstrap_servers,
        "--commit-every": commit_every,
    }
    options = {key: value for key, value in given.items() if value is not None}
    parts = pipeline.parts(settings, settings.lake, options)

    def say(part: str, level: str, text: str, values: "Mapping[str, Any]") -> None:
        out.progress(text if logs_as_json() else f"{part:9} {text}", level=level, part=part, **values)

    view: Any = nullcontext()
    if out.err.isatty() and not logs_as_json():
        from zync.run.view import View

        seen = View(parts)
        say, view = seen.say, seen.shown()
    with (
        owned(locate("run", settings.lake)),
        measuring("zync.run.figures:RunMetrics", metrics, out, parts) as measured,
        view,
    ):
        running = pipeline.Pipeline(parts, stop_on_signals(), say)
        well = running.run(measured.turn if measured else lambda: None)
    out.progress(f"stopped; {pipeline.summary(parts)}", event="stopped")
    sys.exit(0 if well else 1)
