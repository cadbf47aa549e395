"""The connection for questions gets every property that the consumer and the producer connect by."""

import logging

import pytest

from zync.errors import UsageError
from zync.kafka.admin import Brokers

NOBODY = {"bootstrap.servers": "localhost:1"}
CONNECTING = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "PLAIN",
    "sasl.username": "zync",
    "sasl.password": "secret",
    "enable.ssl.certificate.verification": "false",
    "ssl.endpoint.identification.algorithm": "none",
    "https.ca.location": "probe",
    "client.dns.lookup": "resolve_canonical_bootstrap_servers_only",
    "client.rack": "a",
    "enable.sasl.oauthbearer.unsecure.jwt": "true",
    "metadata.max.age.ms": "60000",
    "retry.backoff.ms": "50",
    "reconnect.backoff.max.ms": "200",
    "socket.keepalive.enable": "true",
}
CONSUMING = {
    "group.id": "g",
    "group.instance.id": "one",
    "group.protocol": "classic",
    "auto.offset.reset": "earliest",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "enable.partition.eof": "true",
    "isolation.level": "read_committed",
    "partition.assignment.strategy": "cooperative-sticky",
    "session.timeout.ms": "6000",
    "max.poll.interval.ms": "300000",
    "fetch.min.bytes": "100000",
    "queued.max.messages.kbytes": "10000",
    "topic.metadata.refresh.interval.ms": "30000",
    "statistics.interval.ms": "2000",
    "check.crcs": "true",
}
PRODUCING = {
    "transaction.timeout.ms": "10000",
    "linger.ms": "5",
    "compression.type": "zstd",
    "message.max.bytes": "2000000",
    "partitioner": "murmur2_random",
    "acks": "all",
}


def test_the_admin_client_takes_all_properties_of_consumers_and_producers() -> None:
    Brokers({**NOBODY, **CONNECTING, **CONSUMING})
    Brokers({**NOBODY, **CONNECTING, **PRODUCING})


@pytest.mark.parametrize(
    "name",
    [
        "enable.ssl.certificate.verification",
        "ssl.endpoint.identification.algorithm",
        "client.dns.lookup",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "metadata.max.age.ms",
        "retry.backoff.ms",
        "topic.metadata.refresh.interval.ms",
        "auto.offset.reset",
        "isolation.level",
    ],
)
def test_a_property_reaches_the_admin_client(name: str) -> None:
    """Which refuses a value that is none, so it has looked at it."""
    with pytest.raises(UsageError, match=f'kafka in the config: .*"{name}"'):
        Brokers({**NOBODY, name: "nonsense"})


def test_a_property_that_librdkafka_does_not_know_is_the_users_mistake() -> None:
    with pytest.raises(UsageError, match='kafka in the config: No such configuration property: "security.protocl"'):
        Brokers({**NOBODY, "security.protocl": "SSL"})


def test_without_bootstrap_servers_the_message_says_where_to_name_them() -> None:
    with pytest.raises(UsageError, match=r"--bootstrap-servers, or kafka.bootstrap.servers in the config"):
        Brokers({"group.id": "g"})


def test_what_the_library_logs_with_debug_goes_to_its_logger_and_not_to_standard_error(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, "librdkafka"):
        brokers = Brokers({**NOBODY, "debug": "broker"})
        brokers.admin.poll(0.2)
    assert "localhost:1" in caplog.text
    assert capfd.readouterr().err == ""
