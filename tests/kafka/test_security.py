"""TLS and SASL reach librdkafka, and the password reaches nobody else."""

import json
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests import certificates
from tests.certificates import PASSWORD
from tests.conftest import TopicMaker, produce, zync
from tests.kafka.conftest import Lake
from zync.deliver.kafka.delivery import Delivery, _Run
from zync.deliver.kafka.producer import TransactionAbortedError
from zync.errors import ZyncError
from zync.kafka import dev_broker
from zync.kafka.dev_broker import DevKafka, free_port
from zync.project.load import load
from zync.staging.table import ensure_staging

_SECURE = """\
listeners=PLAINTEXT://localhost:{{port}},CONTROLLER://localhost:{{controller}},SASL_SSL://localhost:{port}
advertised.listeners=PLAINTEXT://localhost:{{port}},SASL_SSL://localhost:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
user_zync="{password}";
ssl.keystore.type=PKCS12
ssl.keystore.location={store}
ssl.keystore.password={password}
"""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, Path]]:
    """A broker's plain address, the one with TLS and SASL, and the certificate to trust."""
    folder = tmp_path_factory.mktemp("secure")
    store, certificate = certificates.make(folder)
    port = free_port()
    own = _SECURE.format(port=port, password=PASSWORD, store=store)
    plain = [line for line in dev_broker._PROPERTIES.splitlines() if "listeners=" not in line]  # noqa: SLF001
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dev_broker, "_PROPERTIES", "\n".join([*plain, own]))
        kafka = DevKafka(folder / "broker")
        servers = kafka.start()
    yield servers, f"localhost:{port}", certificate
    kafka.stop()


@pytest.fixture
def lake(tmp_path: Path, secure: tuple[str, str, Path]) -> Lake:
    plain, address, certificate = secure
    made = Lake(tmp_path, plain)
    made.config(
        bootstrap_servers=address,
        security_protocol="SASL_SSL",
        sasl_mechanisms="PLAIN",
        sasl_username="zync",
        sasl_password='"${KAFKA_PASSWORD}"',  # noqa: S106
        ssl_ca_location=certificate,
    )
    return made


def sync_from(lake: Lake, name: str, *args: str, password: str = PASSWORD) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "KAFKA_PASSWORD": password}
    return zync(
        "sync-from", "kafka", "raw", "--topic", name, "--until-caught-up", *args, cwd=lake.folder, env=env, check=False
    )


def test_records_come_by_tls_and_sasl_and_the_password_is_nowhere(lake: Lake) -> None:
    topic = TopicMaker(lake.broker)()
    produce(lake.broker, [(topic, 0, b"1"), (topic, 0, b"2")])
    done = sync_from(lake, topic, "--debug")
    assert done.returncode == 0, done.stderr
    assert lake.values() == [b"1", b"2"]
    status = zync("status", "--debug", cwd=lake.folder, env={**os.environ, "KAFKA_PASSWORD": PASSWORD})
    assert topic in status.stdout
    said = done.stdout + done.stderr + status.stdout + status.stderr
    written = b"".join(path.read_bytes() for path in lake.folder.rglob("*") if path.is_file())
    assert PASSWORD not in said
    assert PASSWORD.encode() not in written


def test_passwords_may_be_in_files_and_explain_does_not_show_them(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    topic, secret = TopicMaker(lake.broker)(), tmp_path_factory.mktemp("elsewhere") / "password"
    secret.write_text(f"{PASSWORD}\n")
    produce(lake.broker, [(topic, 0, b"1")])
    config = lake.folder / "zync.yaml"
    config.write_text(
        config.read_text().replace("${KAFKA_PASSWORD}", f"${{file:{secret}}}")
        + f"topics: {{{topic}: {{id: \"concat(value:txn::string, '${{file:{secret}}}')\"}}}}\n"
        + f"transactions: {{done: \"last(value:end::string) = '${{file:{secret}}}'\"}}\n"
        + f"registry: {{url: 'http://localhost:9', basic_auth: 'me:${{file:{secret}}}'}}\n"
    )
    zync("sync-from", "kafka", "raw", "--until-caught-up", cwd=lake.folder)
    assert lake.values() == [b"1"]
    for command in (["explain", "--debug"], ["check", "--debug"], ["status", "--json"]):
        done = zync(*command, cwd=lake.folder)
        assert PASSWORD not in done.stdout + done.stderr
        assert (f"${{file:{secret}}}" in done.stdout) == (command[0] in ("explain", "check"))
    written = b"".join(path.read_bytes() for path in lake.folder.rglob("*") if path.is_file())
    assert PASSWORD.encode() not in written


def test_a_password_is_in_no_table_topic_or_log_of_the_whole_pipeline(
    lake: Lake, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Nor in what is said of records whose id, which has the password in it, or rule fails."""
    topic, secret = TopicMaker(lake.broker)(), tmp_path_factory.mktemp("elsewhere") / "password"
    secret.write_text(f"{PASSWORD}\n")
    it, out = f"${{file:{secret}}}", f"out-{topic}"
    (lake.folder / "out.sql").write_text("SELECT seqno, value:n::int AS n, value:text::int AS number FROM t")
    config = lake.folder / "zync.yaml"
    config.write_text(
        config.read_text().replace("${KAFKA_PASSWORD}", it)
        + f"topics: {{{topic}: {{as: t, id: \"if(value:n::int = 2, raise_error('{it}'), value:n::string)\"}}}}\n"
        + f"transactions: {{done: \"count(*) = 1 AND first(value:text::string) != '{it}'\"}}\n"
        + f"outputs: [{{topic: {out}, sql: out.sql, key: [n]}}]\n"
    )
    produce(lake.broker, [(topic, 0, {"n": n, "text": "1" if n < 3 else "one"}) for n in (1, 2, 3)])
    said = [
        zync(*command, cwd=lake.folder)
        for command in (
            ("sync-from", "kafka", "raw", "--until-caught-up", "--debug"),
            ("sync", "raw", "staging", "--debug"),
            ("dlq", "list", "--json"),
            ("sync-to", "kafka", "staging", "--until-caught-up", "--debug"),
            ("sync-to", "tables", "staging", "--until-caught-up", "--debug"),
            ("verify", "--kafka", "--debug"),
        )
    ]
    assert ("the id expression fails" in said[2].stdout, "cannot be cast" in said[2].stdout) == (True, True)
    assert json.loads(zync("status", "--json", cwd=lake.folder).stdout)["set_aside"] == {"quarantined": 2}
    assert not [one.args for one in said if PASSWORD in one.stdout + one.stderr]
    files = [path for path in lake.folder.rglob("*") if path.is_file()]
    assert not [path for path in files if PASSWORD.encode() in path.read_bytes()]
    tables = [DeltaTable(log.parent) for log in lake.folder.rglob("_delta_log")]  # whose files are compressed
    assert len(tables) >= 3  # raw, staging, and what sync-to tables makes
    assert not [one.table_uri for one in tables if PASSWORD in str(one.to_pyarrow_table().to_pylist())]


def test_a_wrong_password_is_named_as_such_and_not_shown(lake: Lake) -> None:
    topic = TopicMaker(lake.broker)()
    done = sync_from(lake, topic, password="guessed")  # noqa: S106
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "uthentication" in line
    assert "guessed" not in line
    assert not Path(lake.raw).exists()


def test_a_delivery_whose_password_is_refused_while_it_runs_ends(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """And does not try on as if the brokers were away."""
    monkeypatch.setenv("KAFKA_PASSWORD", "guessed")
    config, table = load(lake.folder / "zync.yaml"), ensure_staging(str(lake.folder / "lake" / "staging"))
    delivery = Delivery(table.table_uri, config=config)
    run = _Run(delivery, threading.Event(), lambda _: None, None)
    with pytest.raises(ZyncError, match=r"does not let us in: .*uthentication") as raised:
        run.again(TransactionAbortedError("timed out"), table)
    assert "guessed" not in str(raised.value)


def test_a_certificate_that_is_not_trusted_is_named_as_such(lake: Lake) -> None:
    config = lake.folder / "zync.yaml"
    config.write_text("".join(line for line in config.read_text().splitlines(True) if "ssl.ca" not in line))
    done = sync_from(lake, "t")
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "certificate" in line


def test_with_verification_switched_off_every_client_takes_a_certificate_that_nobody_vouches_for(lake: Lake) -> None:
    topic = TopicMaker(lake.broker)()
    produce(lake.broker, [(topic, 0, b"1")])
    config = lake.folder / "zync.yaml"
    lines = [line for line in config.read_text().splitlines() if "ssl.ca" not in line]
    config.write_text("\n".join([*lines, '  enable.ssl.certificate.verification: "false"', ""]))
    done = sync_from(lake, topic)
    assert done.returncode == 0, done.stderr
    assert lake.values() == [b"1"]
    password = {**os.environ, "KAFKA_PASSWORD": PASSWORD}
    status = json.loads(zync("status", "--json", cwd=lake.folder, env=password).stdout)
    assert status["lag"] == {topic: 0}
    assert zync("verify", "--kafka", cwd=lake.folder, env=password, check=False).returncode == 0


def test_a_password_that_is_not_in_the_environment_is_the_users_mistake(lake: Lake) -> None:
    done = zync("sync-from", "kafka", "raw", "--topic", "t", cwd=lake.folder, check=False)
    assert done.returncode == 2
    assert "KAFKA_PASSWORD" in done.stderr
