"""Reads `zync.yaml` into `zync.config`."""

from dataclasses import replace
from pathlib import Path

import yaml

from zync.config.model import (
    Config,
)
from zync.debezium import preset
from zync.errors import UsageError
from zync.lake import storage
from zync.project.checks import check_fence, check_parts, check_preset_keys, check_rules, check_storage
from zync.project.yaml_reader import Reader, find


def load(path: Path | str, lake: str | None = None) -> Config:
    """Reads and checks the config file at `path`. From then on its `storage` is how this process reaches object stores.

    Args:
        path: The path of `zync.yaml`. The files that it names are read relative to its folder.
        lake: The lake instead of the file's.

    Raises:
        UsageError: The config is wrong. The message names `file:line` of the first error.

    Example:
        >>> config = zync.load_config("zync.yaml")
        >>> list(config.topics)
        ['order', 'menu']
    """
    path = Path(path)
    reader = Reader(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except FileNotFoundError:
        msg = f"no config at {path}: `zync init` writes one, --config names another"
        raise UsageError(msg) from None
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{path} cannot be read: {error}"
        raise UsageError(msg) from error
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        msg = f"{path}:{line}: not YAML: {error.problem}"
        raise UsageError(msg) from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        msg = f"{path}:{line}: not YAML: {error.reason} (#x{ord(text[error.position]):04x})"
        raise UsageError(msg) from error
    except RecursionError as error:
        msg = f"{path}:1: nested too deeply to be a config"
        raise UsageError(msg) from error
    if node is not None and node.tag == "tag:yaml.org,2002:null":  # for example if all but `---` is commented out
        node = None
    check_fence(reader, find(node, "storage"))
    config: Config = reader.value(Config, node, "the config") if node is not None else Config()
    check_storage(config, reader, node, lake)
    rules = tuple(
        replace(rule, python=str(reader.base / rule.python)) if rule.python else rule for rule in config.outputs
    )
    lookups = {
        name: replace(lookup, delta=reader.location(lookup.delta)) if lookup.delta else lookup
        for name, lookup in config.lookups.items()
    }
    location = lake or reader.location(config.lake)
    access = config.storage
    if access.credentials_file:
        access = replace(access, credentials_file=str((reader.base / access.credentials_file).absolute()))
    config = replace(
        config,
        storage=access,
        lake=location,
        outputs=rules,
        lookups=lookups,
        path=path.absolute(),
        elsewhere=reader.elsewhere,
    )
    check_rules(config, reader, node)  # first: the preset reads them
    config = check_parts(preset.expand(check_preset_keys(config, reader, node)), reader, node)
    storage.use(config.storage)
    return config
