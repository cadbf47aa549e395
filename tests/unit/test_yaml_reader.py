"""Whatever a zync.yaml holds, it is a config, or the user's mistake with file and line."""

import re
from datetime import timedelta
from pathlib import Path

import pytest

from zync.config.model import Config
from zync.errors import UsageError
from zync.project.load import load


def read(folder: Path, text: str) -> Config:
    (folder / "zync.yaml").write_text(text, encoding="utf-8")
    return load(folder / "zync.yaml")


def mistake(folder: Path, text: str) -> str:
    """What is said of that config, from the line on."""
    with pytest.raises(UsageError) as raised:
        read(folder, text)
    found = re.fullmatch(re.escape(str(folder)) + r"/zync.yaml:(.*)", str(raised.value))
    assert found, f"one line, with file and line: {raised.value}"
    return found[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lake: l\ntopcs: {}", "2: unknown key 'topcs' in the config: did you mean 'topics'?"),
        ("topics:\n  a: {id: x, nullid: single}", "2: unknown key 'nullid' in topics.a: did you mean 'null_id'?"),
        ("transactions:\n  dne: x", "2: unknown key 'dne' in transactions: did you mean 'done'?"),
        ("limits: {most: 1}", "1: unknown key 'most' in limits: known are max_quarantined"),
        ("path: x", "1: unknown key 'path' in the config: known are debezium"),  # a field, and no key
        ("topics: {a: {id: x, envelope: 1}}", "1: unknown key 'envelope' in topics.a"),
        ("deliver: {kafka: {topics: {o: {as_: x}}}}", "1: unknown key 'as_' in deliver.kafka.topics.o: did you mean"),
        ("registry: {timeout: 1s}", "1: registry needs 'url'"),
        ("outputs:\n- {sql: x}", "2: outputs needs 'topic'"),
    ],
)
def test_a_key_that_is_none_is_named_with_the_nearest(tmp_path: Path, text: str, expected: str) -> None:
    assert mistake(tmp_path, text).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topics: {? [a, b] : {id: x}}", "1: topics has a key that is not text"),
        ("topics:\n  ? {a: b}\n  : {id: x}", "2: topics has a key that is not text"),
        ("topics: {? !!binary aGk= : {id: x}}", "1: topics has a key that is not text"),
        ("kafka: {a: x, a: y}", "1: 'a' is there twice in kafka"),
        ("topics:\n  a: {id: x}\n  'a': {id: y}", "3: 'a' is there twice in topics"),
        ("topics:\n  a: &a {id: x}\n  b: {<<: *a, as: c}", "3: topics.b has a merge key (<<)"),
        ("<<: {lake: l}", "1: the config has a merge key (<<)"),
        ("lake: !!python/object/apply:os.system [x]", "1: lake has the tag 'python/object/apply:os.system'"),
        ("lake: !include other.yaml", "1: lake has the tag '!include'"),
        ("kafka: !!set {a, b}", "1: kafka has the tag 'set'"),
        ("kafka: !!binary aGk=", "1: kafka has the tag 'binary'"),
        ("topics: &t {a: *t}", "1: unknown key 'a' in topics.a"),
        ("topics: &t {id: *t}", "1: topics.id.id must be a single value"),
        ("outputs: &o [*o]", "1: outputs must have keys and values"),
        ("lake: *nowhere", "1: not YAML: found undefined alias"),
        ("lake: l\n---\nlake: m", "2: not YAML: but found another document"),
        ("- lake", "1: the config must have keys and values"),
        ("lake", "1: the config must have keys and values"),
        ("topics:", "1: topics must have keys and values"),
        ("outputs: {}", "1: outputs must be a list"),
        ("lake: [a]", "1: lake must be a single value"),
        ("lake:", "1: lake has no value"),
        ("kafka:\n  a: ~", "2: kafka.a has no value"),
        ("limits: {max_quarantined: null}", "1: limits.max_quarantined has no value"),
        ('lake: "a\\0b"', "1: lake has a character that is no text ('\\x00')"),
        ('lake: "\\ud800"', "1: lake has a character that is no text ('\\ud800')"),
        ('kafka: {"\\0": x}', "1: a key of kafka has a character that is no text"),
        ("transactions: {remember: .nan}", "1: transactions.remember: '.nan' is not a whole number"),
        ("transactions: {remember: 1e3}", "1: transactions.remember: '1e3' is not a whole number"),
        ("transactions: {remember: 2020-01-01}", "1: transactions.remember: '2020-01-01' is not a whole number"),
        ("transactions: {remember: yes}", "1: transactions.remember: 'yes' is not a whole number"),
        (f"transactions: {{remember: {'9' * 5000}}}", "1: transactions.remember: '999"),
        ("transactions: {remember: 9223372036854775808}", "1: transactions.remember must be 0 or more, and 922"),
        ("limits: {max_quarantined: .inf%}", "1: limits.max_quarantined: '.inf%' is not a whole number or a share"),
        ("limits: {max_quarantined: inf%}", "1: limits.max_quarantined must be 0 or more"),
        ("limits: {max_quarantined: 0.5}", "1: limits.max_quarantined: '0.5' is not a whole number or a share like 5%"),
        ("limits: {records_per_sync: all}", "1: limits.records_per_sync: 'all' is not a whole number, or auto"),
        ("limits: {records_per_sync: 0}", "1: limits.records_per_sync must be auto, or 1 or more"),
        ("limits: {records_per_sync: [auto]}", "1: limits.records_per_sync must be a single value"),
        ("deliver: {kafka: {topics: {o: {partitions: 2147483648}}}}", "1: deliver.kafka.topics.o: partitions and"),
        ("topics: {^(: {id: x}}", "1: topics: '^(' is not a regular expression: missing )"),
        ("topics: {'^a{99999999999}': {id: x}}", "1: topics: '^a{99999999999}' is not a regular expression: the rep"),
        ("lake: \x07", "1: not YAML: special characters are not allowed (#x0007)"),
        ("a: b: c", "1: not YAML: mapping values are not allowed here"),
        ("lake: 'l", "1: not YAML: found unexpected end of stream"),
        ("\tlake: l", "1: not YAML: found character '\\t' that cannot start any token"),
        ("%YAML 3.0\n---\nlake: l", "1: not YAML: found incompatible YAML document"),
        ("[" * 1000, "1: nested too deeply to be a config"),
    ],
)
def test_a_hostile_file_is_one_mistake_with_its_line(tmp_path: Path, text: str, expected: str) -> None:
    assert mistake(tmp_path, text).startswith(expected)


@pytest.mark.parametrize("content", [b"lake: \xff", "lake: l".encode("utf-16"), b"\xef\xbb\xbf\xef\xbb"])
def test_a_file_that_is_not_utf_8_cannot_be_read(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "zync.yaml").write_bytes(content)
    with pytest.raises(UsageError, match=r"zync.yaml cannot be read: 'utf-8' codec"):
        load(tmp_path / "zync.yaml")


def test_a_folder_is_no_config_and_what_is_not_there_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read: .*Is a directory"):
        load(tmp_path)
    with pytest.raises(UsageError, match="no config at .*zync.yaml: `zync init` writes one"):
        load(tmp_path / "zync.yaml")


@pytest.mark.parametrize("text", ["", "# nothing", "---", "\ufeff", "{}"])
def test_a_file_without_a_word_is_the_config_of_defaults(tmp_path: Path, text: str) -> None:
    config = read(tmp_path, text)
    assert (config.topics, config.kafka, config.outputs) == ({}, {}, ())
    assert config.lake == str(tmp_path / "lake")


def test_keys_are_text_whatever_yaml_would_take_them_for(tmp_path: Path) -> None:
    config = read(tmp_path, "topics: {1: {id: x}, yes: {id: x}, null: {id: x}, 2020-01-01: {id: x}, =: {id: x}}")
    assert [*config.topics] == ["1", "yes", "null", "2020-01-01", "="]


def test_values_are_what_the_field_is_and_not_what_yaml_would_take_them_for(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        "kafka: {a: 1, b: yes, c: 0x1F, d: 2020-01-01, e: .nan, f: ''}\n"
        "transactions: {remember: 1_000, expire_after: 90m, done: 1 = 1}\n"
        "limits: {max_quarantined: 5%}\nlookups: {}",
    )
    assert config.kafka == {"a": "1", "b": "yes", "c": "0x1F", "d": "2020-01-01", "e": ".nan", "f": ""}
    assert config.transactions.remember == 1000
    assert config.transactions.expire_after == timedelta(minutes=90)
    assert config.limits.max_quarantined == 0.05


def test_an_alias_is_its_anchors_value(tmp_path: Path) -> None:
    config = read(tmp_path, "topics:\n  a: &it {id: x, null_id: single}\n  b: *it")
    assert config.topics["a"] == config.topics["b"]


def test_only_what_may_be_left_out_may_be_null(tmp_path: Path) -> None:
    config = read(tmp_path, "topics: {a: {id: x, schema: null, key: ~}}\nregistry:\ndeliver: {kafka: }")
    assert (config.topics["a"].schema, config.topics["a"].key, config.registry, config.deliver.kafka) == (None,) * 4


def test_environment_variables_and_files_are_read_and_remembered_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZYNC_TEST_USER", "me")
    (tmp_path / "password").write_text("correct horse\n")
    config = read(tmp_path, "kafka: {a: '${ZYNC_TEST_USER}:${file:password}', b: '$HOME', c: '${}'}")
    assert config.kafka == {"a": "me:correct horse", "b": "$HOME", "c": "${}"}
    assert config.elsewhere == {"me": "${ZYNC_TEST_USER}", "correct horse": "${file:password}"}


def test_what_is_read_from_elsewhere_is_not_read_again_as_a_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZYNC_TEST_USER", "${HOME}")
    assert read(tmp_path, "kafka: {a: '${ZYNC_TEST_USER}'}").kafka == {"a": "${HOME}"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka:\n  a: ${ZYNC_NOT_SET}", "2: kafka.a needs the environment variable ZYNC_NOT_SET, which is not set"),
        ("lake: ${file:none}", "1: lake needs the file none, and cannot read it: No such file"),
        ("lake: ${file:.}", "1: lake needs the file ., and cannot read it: Is a directory"),
        ("lake: ${file:binary}", "1: lake needs the file binary, and cannot read it: it is not text"),
        ("lake: ${file:nul}", "1: lake has a character that is no text ('\\x00')"),
    ],
)
def test_a_reference_that_leads_nowhere_is_a_mistake(tmp_path: Path, text: str, expected: str) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "nul").write_bytes(b"\0")
    assert mistake(tmp_path, text).startswith(expected)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kafka: {a: x}\nformats: {value: '${ZYNC_SECRET}'}", "formats.value must be one of"),
        ("transactions: {expire_after: '${ZYNC_SECRET}'}", "'${ZYNC_SECRET}' is not a length of time"),
        ("transactions: {remember: '${ZYNC_SECRET}'}", "'${ZYNC_SECRET}' is not a whole number"),
    ],
)
def test_a_value_from_elsewhere_is_not_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: str
) -> None:
    monkeypatch.setenv("ZYNC_SECRET", "correct horse")
    said = mistake(tmp_path, text)
    assert expected in said
    assert "correct horse" not in said
