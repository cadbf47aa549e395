"""The pages of the documentation, and what is written in them as code: blocks, commands, spans."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import typer

from zync.cli import app

CHECKOUT = Path(__file__).parents[2]
DOCS = CHECKOUT / "docs"
GENERATED = {DOCS / "reference" / f"{name}.md" for name in ("cli", "config", "errors", "metrics", "postgresql-types")}
GENERATED |= {CHECKOUT / "deploy" / name / "README.md" for name in ("chart", "terraform")}
"""Pages that scripts/docs.py writes; test_generated.py is about them."""
BIN = Path(sys.executable).parent

_FENCE = re.compile(
    r"^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PLACEHOLDERS = {"FOLDER": "new", "FILE…": "consume-1.jsonl", "SELECT …": "SELECT kind, seqno FROM staging"}


@dataclass(frozen=True)
class Block:
    """A fenced block of code. `title`: the file that it is, if it says so."""

    page: str
    language: str
    title: str | None
    text: str

    @property
    def commands(self) -> dict[str, str]:
        """A block's commands: of `sh` with the comment that each has, of `console` with the output below it."""
        if self.language == "console":
            parts = re.split(r"(?m)^\$ ", self.text)[1:]
            return {command.strip(): output.strip() for command, _, output in (one.partition("\n") for one in parts)}
        lines = [re.split(r"\s+#\s+", line, maxsplit=1) for line in self.text.splitlines() if line.strip()]
        return {command.strip(): "".join(comment) for command, *comment in lines}


@dataclass(frozen=True)
class Page:
    """A page written by hand."""

    path: Path

    @property
    def name(self) -> str:
        """Its path in the checkout."""
        return self.path.relative_to(CHECKOUT).as_posix()

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def blocks(self) -> list[Block]:
        return [Block(self.name, one["language"], one["title"], one["text"]) for one in _FENCE.finditer(self.text)]

    @cached_property
    def prose(self) -> str:
        """The text without its blocks."""
        return _FENCE.sub("", self.text)

    @property
    def spans(self) -> list[str]:
        """What is written as code within the prose; of another tool's page, only what is zync's."""
        prose = self.prose
        if "coming-from" in self.name:
            prose = re.sub(r"(?m)^\|[^|]*\|", "", prose)  # the first column is the other tool's
        return re.findall(r"(?<!`)`([^`\n]+)`", prose)


PAGES = [Page(path) for path in [CHECKOUT / "README.md", *sorted(DOCS.rglob("*.md"))] if path not in GENERATED]
BLOCKS = [block for page in PAGES for block in page.blocks]


def page(name: str) -> Page:
    """The page at that path in the checkout."""
    return next(one for one in PAGES if one.name == name)


def blocks(*languages: str) -> list[Block]:
    """All blocks in one of those languages."""
    return [block for block in BLOCKS if block.language in languages]


def forms(text: str) -> list[str]:
    """The commands that `zync cat raw|staging [--kind output]` stands for; placeholders get an example's value."""
    if option := re.search(r" \[([^]]+)]", text):
        return [one for with_ in ("", " " + option[1]) for one in forms(text.replace(option[0], with_))]
    if choice := re.search(r"[\w-]+(?:\|[\w-]+)+", text):
        return [one for word in choice[0].split("|") for one in forms(text.replace(choice[0], word))]
    for name, example in _PLACEHOLDERS.items():
        text = text.replace(name, example)
    return [text]


def commands_below(command: Any) -> Iterator[Any]:
    """The command and all its subcommands."""
    yield command
    for one in getattr(command, "commands", {}).values():
        yield from commands_below(one)


def options_of(command: Any) -> set[str]:
    """The names of the command's options."""
    return {name for parameter in command.params for name in parameter.opts if name.startswith("--")} | {"--help"}


def root() -> Any:
    """`zync` itself."""
    return typer.main.get_command(app)


def find_command(line: str, *, partly: bool = False) -> tuple[Any, list[str]]:
    """The command that the line runs, and its words; one that is named only `partly` may be a group."""
    program, *words = shlex.split(line)
    assert program == "zync"
    command = root()
    while hasattr(command, "commands"):
        if (words and words[0] in options_of(command)) or (partly and not words):
            return command, words
        assert words, f"{line}: a subcommand is missing"
        name = words.pop(0)
        assert name in command.commands, f"{line}: there is no {name}"
        command = command.commands[name]
    return command, words


def parse(line: str, *more: str) -> Any:
    """The command that the line runs, its words parsed by the command line itself, but not run."""
    command, words = find_command(line)
    if hasattr(command, "commands"):  # an option before all commands, as --version
        return command
    try:
        command.make_context(command.name, [*words, *more])
    except Exception as error:
        msg = f"{line} {' '.join(more)}: {error}"
        raise AssertionError(msg) from error
    return command


def planned(*target: str) -> list[str]:
    """What make would run."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    command = ["make", "--dry-run", "--always-make", "--no-print-directory", *target]
    done = subprocess.run(command, cwd=CHECKOUT, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def environment(**more: str) -> dict[str, str]:
    """The environment of somebody who has just installed zync."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("ZYNC_") or key == "ZYNC_CACHE"}
    return {**ours, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}", **more}


def shell(command: str, cwd: Path, **more: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command to its end."""
    return subprocess.run(
        ["bash", "-c", command], cwd=cwd, env=environment(**more), capture_output=True, text=True, check=False
    )


def has(text: str, pattern: str) -> bool:
    """Whether the pattern is in the text, over lines."""
    return re.search(pattern, text, re.DOTALL) is not None
