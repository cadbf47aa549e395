"""Writes the pages of the reference that follow from the code: `python scripts/docs.py`.

`--check` writes nothing, names the pages that are stale, and exits 1 if there are any.
"""

import inspect
import json
import re
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import typer
import yaml
from prometheus_client import CollectorRegistry

# All that this file knows of zync's modules.
from zync import errors as errors_module
from zync.cli import app
from zync.config.model import Config
from zync.deliver.metrics import KafkaDeliveryMetrics
from zync.errors import INTERRUPTED, ZyncError
from zync.ingest.metrics import IngestMetrics
from zync.ingest.outcome import Ingested
from zync.kafka.partition import Partition
from zync.raw.table import ensure_raw
from zync.run.scrape import RunMetrics
from zync.sync.metrics import SyncMetrics

CHECKOUT = Path(__file__).parents[1]
REFERENCE = CHECKOUT / "docs" / "reference"
CHART = CHECKOUT / "deploy" / "chart"
TERRAFORM = CHECKOUT / "deploy" / "terraform"


def pages() -> dict[Path, str]:
    """The text of each generated page, by its path."""
    made = {"cli": cli_page(), "config": config_page(), "metrics": metrics_page(), "errors": errors_page()}
    made["postgresql-types"] = postgresql_types_page()
    notice = "<!-- Written by scripts/docs.py from the code: a change here is lost. -->\n\n"
    reference = {REFERENCE / f"{name}.md": notice + text.rstrip() + "\n" for name, text in made.items()}
    return {**reference, CHART / "README.md": chart_page(), TERRAFORM / "README.md": terraform_page()}


def stale() -> list[Path]:
    """The generated pages that are not what the code says."""
    return [path for path, text in pages().items() if not path.exists() or path.read_text(encoding="utf-8") != text]


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """A Markdown table. No cell has a `|`: within code, readers of Markdown differ about how to escape it."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def code(text: object) -> str:
    """`text` as code."""
    return f"`{text}`"


# ---------------------------------------------------------------------------------------------------- command line

CLI_INTRO = f"""\
# Command line

`zync COMMAND --help` shows the same at the terminal. `zync --version` shows the versions of zync and of what it is
built on. `zync --install-completion` sets up completion for your shell, which waits for it at most a second, or
`ZYNC_COMPLETION_SECONDS`.

- Options come after the subcommand.
- A table's name means a folder of the lake: `raw` is `<lake>/raw`. A value with a `/` or a scheme (`s3://…`) is a path
  or URI.
- `--json` prints one object, or one object a line for commands that print rows.
- `--lake` and the environment variable `ZYNC_LAKE` go before `lake:` in the config.
- Results go to standard output. Progress, warnings and errors go to standard error. With `--log-format json` each line
  there is a JSON object.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | failed; of `check`, `diff` and `verify` also: something was found |
| 2 | your mistake: an option, the config, a rule or an input file |
| 3 | another writer owns the table |
| 4 | a table was deleted or replaced while zync used it |
| {INTERRUPTED} | ended by Ctrl-C |

"""


def cli_page() -> str:
    """Each command with its arguments, options and examples."""
    root: Any = typer.main.get_command(app)
    commands = list(_commands(root, "zync"))
    overview = table(
        ("command", "what it does"), ((f"[`{name}`](#{_anchor(name)})", _first(it)) for name, it in commands)
    )
    return CLI_INTRO + overview + "\n" + "\n".join(_command(name, command) for name, command in commands)


def _commands(group: Any, name: str) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, f"{name} {word}")
        else:
            yield f"{name} {word}", command


def _anchor(name: str) -> str:
    return name.replace(" ", "-")


def _first(command: Any) -> str:
    """The first sentence of the command's help."""
    return re.split(r"(?<=\.)\s", command.help.strip(), maxsplit=1)[0]


def _command(name: str, command: Any) -> str:
    paragraphs = re.split(r"\n\s*\n", command.help.strip())
    examples = ["\n".join(line.strip() for line in one.splitlines()[1:]) for one in paragraphs if one.startswith("\b")]
    prose = [" ".join(one.split()) for one in paragraphs if not one.startswith("\b")]
    parameters = [one for one in command.params if not one.hidden]
    arguments = [one for one in parameters if one.param_type_name == "argument"]
    options = [one for one in parameters if one.param_type_name == "option" and one.name != "help"]
    words = [_usage(one) for one in arguments]
    parts = [f"## {name}", *prose, f"```text\n{' '.join([name, *words, '[OPTIONS]'])}\n```"]
    parts += [f"```sh\n{example}\n```" for example in examples]
    if arguments:
        rows = ((code(_name(one)), *_values(one), one.help or "") for one in arguments)
        parts.append(table(("argument", "values", "default", "meaning"), rows))
    parts.append(table(("option", "values", "default", "meaning"), (_option(one) for one in options)))
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _name(argument: Any) -> str:
    return str(argument.metavar or argument.name.upper()).strip("[]").removesuffix("]...")


def _usage(argument: Any) -> str:
    choices = _choices(argument)
    name = "|".join(choices) if choices else _name(argument)
    name += "…" if argument.nargs != 1 else ""
    return name if argument.required else f"[{name}]"


def _choices(parameter: Any) -> tuple[str, ...]:
    """The values that a parameter may have, where they are listed."""
    kind = parameter.type_descriptor.annotation
    return get_args(kind) if get_origin(kind) is Literal else ()


_KINDS = {"str": "TEXT", "int": "N", "float": "N", "Path": "PATH", "list": "TEXT", "timedelta": "TIME"}


def _values(parameter: Any) -> tuple[str, str]:
    """What values it takes, and its default."""
    kind = parameter.type_descriptor.annotation
    choices, default = _choices(parameter), parameter.default
    if getattr(parameter, "is_flag", False):
        return "", ""
    named = str(parameter.metavar or _KINDS.get(kind.__name__, kind.__name__))
    values = ", ".join(map(code, choices or named.split("|")))
    if isinstance(parameter.show_default, str):
        return values, code(parameter.show_default)
    if parameter.required:
        return values, "required"
    return values, "" if default is None or callable(default) else code(default)


def _option(option: Any) -> tuple[str, str, str, str]:
    values, default = _values(option)
    names = ", ".join(map(code, option.opts))
    said = [option.help or "", f"At least {option.min}." if option.min is not None else ""]
    said.append(f"Environment: `{option.envvar}`." if option.envvar else "")
    return names, values, default, " ".join(part for part in said if part)


# ------------------------------------------------------------------------------------------------------- zync.yaml

CONFIG_INTRO = """\
# zync.yaml

`zync init` writes a commented file, and `zync check` reads it with you. `zync config schema` prints a JSON Schema of
the file, which editors complete and check by.

- Paths are relative to the file.
- An unknown key is an error that names the file, the line and the nearest known key.
- `${NAME}` is read from the environment, and `${file:PATH}` from a file, as secrets are mounted. Where an error would
  quote such a value it shows `${NAME}` instead; only addresses are shown: `lake`, `storage.endpoint`, `storage.region`
  and `bootstrap.servers`.
- A time is written like `500ms`, `30s`, `15m`, `24h`, `7d` or `2w`.

A whole config, with a comment at each key, is in [On your own Kafka](../how-to/own-kafka.md#the-config).

"""


@dataclass(frozen=True)
class Section:
    """A mapping of the config: its path of keys, and the dataclass that it is read into."""

    path: str
    kind: Any


def config_page() -> str:
    """Each key of the config with its type, default and meaning."""
    sections = list(_sections(Section("", Config)))
    return CONFIG_INTRO + "\n".join(
        _section(one, {other.kind: other for other in reversed(sections)}) for one in sections
    )


def _sections(section: Section) -> Iterator[Section]:
    """The section and those below it, each kind once."""
    seen: set[Any] = set()

    def walk(one: Section) -> Iterator[Section]:
        if one.kind in seen:
            return
        seen.add(one.kind)
        yield one
        for key, _, kind in _keys(one.kind):
            inner, of = _inner(kind)
            if inner is not None:
                yield from walk(Section(f"{one.path}.{key}{of}".removeprefix("."), inner))

    yield from walk(section)


def _keys(kind: Any) -> Iterator[tuple[str, "Field[Any]", Any]]:
    """The keys that the file may have there, with field and type."""
    hints = get_type_hints(kind)
    for one in fields(kind):
        key = one.metadata.get("key", one.name)
        if key is not None:
            yield key, one, hints[one.name]


def _inner(kind: Any) -> tuple[Any, str]:
    """The dataclass that values of the type are made of, and what stands for a name or an item in its path."""
    origin, args = get_origin(kind), [one for one in get_args(kind) if one is not NoneType]
    if origin in (Union, UnionType) and len(args) == 1:
        return _inner(args[0])
    if is_dataclass(kind):
        return kind, ""
    if origin is dict and (is_dataclass(args[1]) or get_origin(args[1]) is not None):
        return _inner(args[1])[0], ".NAME"
    if origin is tuple and is_dataclass(args[0]):
        return args[0], "[]"
    return None, ""


def _section(section: Section, known: dict[Any, Section]) -> str:
    text, meanings = attributes(section.kind)
    missing = [one.name for _, one, _ in _keys(section.kind) if one.name not in meanings]
    if missing:
        msg = f"{section.kind.__name__} says nothing of {', '.join(missing)} under `Attributes:`"
        raise SystemExit(msg)
    rows = (
        (code(key), _type(kind, known), _default(one), meanings[one.name]) for key, one, kind in _keys(section.kind)
    )
    title = code(section.path) if section.path else "Top level"
    return f"## {title} {{#{_section_anchor(section)}}}\n\n{text}\n\n" + table(
        ("key", "type", "default", "meaning"), rows
    )


def _section_anchor(section: Section) -> str:
    return re.sub(r"\W+", "-", section.path).strip("-").lower() or "top"


def attributes(kind: Any) -> tuple[str, dict[str, str]]:
    """The docstring's text before its Google-style section `Attributes:`, and what that says of each field."""
    text, _, listed = inspect.cleandoc(kind.__doc__ or "").partition("Attributes:\n")
    found: dict[str, str] = {}
    for name, meaning in re.findall(r"(?ms)^    (\w+): (.+?)(?=^    \w+: |^\S|\Z)", listed):
        found[name] = " ".join(meaning.split())
    return " ".join(text.split()), found


_PLAIN = {
    str: "text",
    int: "whole number",
    float: "share like `5%`",
    Path: "path",
    timedelta: "time",
    bool: "yes or no",
}


def _type(kind: Any, known: dict[Any, Section]) -> str:
    inner, of = _inner(kind)
    if inner is not None:
        section = known[inner]
        link = f"[{code(section.path)}](#{_section_anchor(section)})"
        return {"": link, ".NAME": f"names, each with {link}", "[]": f"list of {link}"}[of]
    origin, args = get_origin(kind), [one for one in get_args(kind) if one is not NoneType]
    if origin in (Union, UnionType):
        return " or ".join(_type(one, known) for one in reversed(args))
    if origin is Literal:
        return ", ".join(map(code, args))
    if origin is dict:
        return "names and values"
    if origin is tuple:
        return f"list of {_type(args[0], known)}"
    return _PLAIN[kind]


def _default(one: "Field[Any]") -> str:
    if one.default is MISSING:
        return "required" if one.default_factory is MISSING else ""
    if one.default in (None, "", ()):
        return ""
    return code(_duration(one.default) if isinstance(one.default, timedelta) else one.default)


def _duration(value: timedelta) -> str:
    seconds = int(value.total_seconds())
    return f"{seconds // 3600}h" if seconds % 3600 == 0 else f"{seconds}s"


# --------------------------------------------------------------------------------------------------------- metrics

METRICS_INTRO = """\
# Metrics

`--metrics HOST:PORT` on `sync-from`, `sync --follow`, `sync-to` and `run` answers at three addresses:

- `/metrics`, for Prometheus.
- `/healthz`: 200 while the process lives.
- `/readyz`: 200 while the work gets on, 503 with the reason while it does not
  ([when that is](../how-to/production.md#metrics)).

Counters begin at 0 with each process. `zync run` answers for all its parts; each sample then has the label `part`.
`deploy/grafana/zync.json` is a Grafana dashboard over these metrics.

"""


def metrics_page() -> str:
    """Each metric that a process exposes: name, type, labels, help."""
    with tempfile.TemporaryDirectory() as folder:
        ensure_raw(folder)
        ingest = IngestMetrics()
        ingest.watch(Ingested(), folder)
        ingest.behind({Partition("topic", 0): 1}, {Partition("topic", 0): 1.0})
        parts = {
            "sync-from": ingest.registry,
            "sync --follow": SyncMetrics().registry,
            "sync-to": KafkaDeliveryMetrics().registry,
            "run": RunMetrics(()).registry,
        }
        texts = [f"## `zync {name}`\n\n{_notes(name)}{_metrics(registry)}" for name, registry in parts.items()]
    return METRICS_INTRO + "\n".join(texts)


def _notes(name: str) -> str:
    return "`sync-to tables` has all but `zync_delivery_transactions_total`.\n\n" if name == "sync-to" else ""


def _metrics(registry: CollectorRegistry) -> str:
    labels = _labels(registry)
    rows = []
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        names = {key for sample in family.samples for key in sample.labels} - {"le"} | set(labels.get(family.name, ()))
        rows.append((code(name), family.type, ", ".join(map(code, sorted(names))), family.documentation))
    return table(("metric", "type", "labels", "meaning"), rows)


_NAMED_LATER = {"zync_run_up": ("part",), "zync_run_restarts": ("part",)}
"""Labels of families that have no sample while there are no parts."""


def _labels(registry: CollectorRegistry) -> dict[str, tuple[str, ...]]:
    """The labels of each metric, also of those that have no sample yet: only the collectors know these."""
    collectors = registry._collector_to_names  # noqa: SLF001 - prometheus_client has no public way
    named = {getattr(one, "_name", ""): getattr(one, "_labelnames", ()) for one in collectors}
    return {**_NAMED_LATER, **named}


# ---------------------------------------------------------------------------------------------------------- errors

ERRORS_INTRO = """\
# Errors

A command that fails prints one message on standard error: what was found, where it is (file and line, or topic,
partition and offset), and what to do. `--debug` adds the traceback. From Python the same errors are raised as the
exceptions below. All of them are a `ZyncError`.

`--log-format json` adds the code. Codes are stable: programs may compare them.

After a `CommitUnknownError` look at the table before you try again: the commit may have landed.

"""


def errors_page() -> str:
    """Each kind of error with its code, its exit code and its docstring: those of `zync.errors`, then the others."""
    rows = (
        (code(one.__name__), code(one.code), str(one.exit_code), " ".join((one.__doc__ or "").split()))
        for one in error_classes()
    )
    return ERRORS_INTRO + table(("class", "code", "exit code", "meaning"), rows)


def error_classes() -> list[type[ZyncError]]:
    """ZyncError and all its subclasses: those of `zync.errors` in their order, then those of other modules by name."""
    for path in sorted(Path(str(errors_module.__file__)).parent.rglob("*.py")):
        if re.search(r"^class \w+\(\w*Error\):", path.read_text(encoding="utf-8"), re.MULTILINE):
            parts = path.relative_to(Path(str(errors_module.__file__)).parents[1]).with_suffix("").parts
            import_module(".".join(parts))
    found, new = [ZyncError], [ZyncError]
    while new := [below for one in new for below in one.__subclasses__() if below not in found]:
        found += new
    general = [one for one in vars(errors_module).values() if one in found]
    return general + sorted((one for one in found if one not in general), key=lambda one: one.__name__)


# ---------------------------------------------------------------------------------------------- PostgreSQL's types

POSTGRESQL_TYPES_INTRO = """\
# PostgreSQL's types, one by one

What a rule sees in `row` of each type: a real PostgreSQL 15, Debezium 3.7, Connect's converters for JSON and Apicurio's
for Avro, in five settings of the connector's options. `tests/cdc/test_postgresql_types.py::test_what_a_rule_sees` holds
each line. [Debezium's types](debezium-types.md) has the rules behind them, and how to say what plain JSON does not.

- **where** has the values of the options `time.precision.mode`, `decimal.handling.mode`, `interval.handling.mode`,
  `hstore.handling.mode` and `binary.handling.mode` for which a line holds. *plain JSON* is the JSON converter with
  `schemas.enable=false`. *in a snapshot*: not of a row that is streamed. *otherwise*: where no other line of the value
  holds.
- **a rule sees** has the VARIANT's type and its text, of binary data in hexadecimal.
- **exact**: PostgreSQL reads the text as the value that it has
  (`tests/cdc/test_postgresql_types.py::test_postgresql_reads_what_a_rule_sees_as_the_value_that_it_has`). Where it is
  not, the text has another form, as a number of days, or it is another value, as Debezium makes it.
- A type that Debezium does not know is not sent, but for `include.unknown.datatypes=true`, which the setting with
  `microseconds` has.

"""
_NO_VALUE = {
    "not sent": "nothing: the column is not sent",
    "set aside": "nothing: its transaction is set aside",
    "VOID": "null",
}
_WHERE = {"plain": "plain JSON", "snapshot": "in a snapshot"}


def postgresql_types_page() -> str:
    """What a rule sees of each of PostgreSQL's types, a line for each place where that differs."""
    sys.path.append(str(CHECKOUT))
    from tests.cdc.postgresql_types import TYPES  # noqa: PLC0415 - the data of a test

    rows = (
        (code(kind), code(value), _where(words, seen), _sees(text), _exact(text))
        for kind, value, seen in TYPES
        for words, text in seen.items()
    )
    return POSTGRESQL_TYPES_INTRO + table(("type", "value", "where", "a rule sees", "exact"), rows)


def _where(words: str, seen: dict[str, str]) -> str:
    if not words:
        return "everywhere" if len(seen) == 1 else "otherwise"
    return ", ".join(_WHERE.get(one, code(one)) for one in words.split())


def _sees(text: str) -> str:
    return _NO_VALUE.get(text) or code(text.removeprefix("~"))


def _exact(text: str) -> str:
    return "" if text in _NO_VALUE else "no" if text.startswith("~") else "yes"


# ------------------------------------------------------------------------------------------------------- the chart

CHART_VALUES = "## Values\n\n<!-- Written by scripts/docs.py from values.yaml: a change below is lost. -->\n\n"


def chart_page() -> str:
    """The chart's README: what is written by hand, and then a table of values.yaml for each of its sections."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    lines = text.splitlines()
    prose = (CHART / "README.md").read_text(encoding="utf-8").partition(CHART_VALUES)[0]
    rows = _values_below(yaml.compose(text, yaml.SafeLoader), "", lines)
    return prose + CHART_VALUES + table(("value", "default", "meaning"), rows)


def _values_below(node: yaml.MappingNode, path: str, lines: list[str]) -> Iterator[tuple[str, ...]]:
    """A row for each value with a comment above it; the values of a section have comments of their own."""
    for key, value in node.value:
        name, comment = f"{path}{key.value}", _comment_above(key.start_mark.line, lines)
        has_values = isinstance(value, yaml.MappingNode) and any(
            inner.start_mark.line > key.start_mark.line and _comment_above(inner.start_mark.line, lines)
            for inner, _ in value.value
        )
        if has_values:
            yield from _values_below(value, f"{name}.", lines)
        elif comment:
            default = yaml.SafeLoader("").construct_object(value, deep=True)
            yield code(name), code(json.dumps(default)), comment
        else:
            msg = f"deploy/chart/values.yaml says nothing of {name}: write a comment above it"
            raise SystemExit(msg)


def _comment_above(number: int, lines: list[str]) -> str:
    """The text of the comment that ends in the line above the one of that number, counted from 0."""
    comment: list[str] = []
    while number and lines[number - 1].lstrip().startswith("# "):
        number -= 1
        comment.insert(0, lines[number].lstrip().removeprefix("# "))
    return " ".join(comment)


# ------------------------------------------------------------------------------------------- modules of Terraform

CLOUDS = ("eks", "gke", "aks")
TERRAFORM_VARIABLES = "## Variables\n\n<!-- Written by scripts/docs.py from the modules: a change below is lost. -->\n"


def terraform_page() -> str:
    """The modules' README: what is written by hand, and then tables of their variables and outputs."""
    prose = (TERRAFORM / "README.md").read_text(encoding="utf-8").partition(TERRAFORM_VARIABLES)[0]
    variables = {cloud: _declarations(cloud, "variable") for cloud in CLOUDS}
    shared = [
        name for name, row in variables["eks"].items() if all(variables[cloud].get(name) == row for cloud in CLOUDS)
    ]
    head = ("variable", "default", "meaning")
    sections = [f"{TERRAFORM_VARIABLES}\nOf all three:\n\n{table(head, (variables['eks'][name] for name in shared))}"]
    for cloud in CLOUDS:
        own = (row for name, row in variables[cloud].items() if name not in shared)
        outputs = ((name, meaning) for name, _, meaning in _declarations(cloud, "output").values())
        sections.append(f"\n### {cloud}\n\n{table(head, own)}\n{table(('output', 'meaning'), outputs)}")
    return prose + "".join(sections)


def _declarations(cloud: str, kind: str) -> dict[str, tuple[str, str, str]]:
    """A row for each variable or output of a cloud's module, by its name: name, default and description."""
    text = (TERRAFORM / "modules" / cloud / f"{kind}s.tf").read_text(encoding="utf-8")
    rows = {}
    for name, body in re.findall(rf'^{kind} "(\w+)" {{\n(.*?)^}}', text, re.MULTILINE | re.DOTALL):
        given = dict(re.findall(r"^  (\w+) += (.+)$", body, re.MULTILINE))
        if "description" not in given:
            msg = f"{kind} {name} of deploy/terraform/modules/{cloud} has no description"
            raise SystemExit(msg)
        default = code(given["default"]) if "default" in given else "required"
        rows[name] = (code(name), default, json.loads(given["description"]))
    return rows


def main(arguments: list[str]) -> int:
    """Writes the pages, or with `--check` names the stale ones."""
    if "--check" in arguments:
        found = stale()
        for path in found:
            print(f"{path.relative_to(REFERENCE.parents[1])} is stale: python scripts/docs.py")
        return 1 if found else 0
    for path, text in pages().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
