"""sync-to kafka by a user who may not do all that it does: said at once, in a line that names what is missing."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from tests.conftest import TopicMaker
from tests.deliver.conftest import Staging, row
from zync.errors import ZyncError
from zync.kafka import dev_broker
from zync.kafka.dev_broker import DevKafka

_GUARDED = """
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
"""


def rule(servers: str, kind: ResourceType, name: str, what: AclOperation, how: AclPermissionType) -> None:
    """What everybody may do, or may not, with what has that name."""
    one = AclBinding(kind, name, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*", what, how)
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.create_acls([one]).values():
        future.result(20)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker that has rules about who may do what."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dev_broker, "_PROPERTIES", dev_broker._PROPERTIES + _GUARDED)  # noqa: SLF001
        kafka = DevKafka(tmp_path_factory.mktemp("guarded") / "broker")
        servers = kafka.start()
    for kind in (ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID):
        rule(servers, kind, "*", AclOperation.ALL, AclPermissionType.ALLOW)
    yield servers
    kafka.stop()


@pytest.mark.parametrize(
    ("what", "which", "said"),
    [
        ("WRITE", "output", r"Topic authorization failed.* \(it needs WRITE on the topics of all outputs"),
        ("DESCRIBE", "output", r"is there, and this user may not look at it \(DESCRIBE\)"),
        ("WRITE", "progress", r"Topic authorization failed.* \(it needs WRITE on the topics of all outputs"),
        ("READ", "progress", r"topic progress-\w+, which says how far .* cannot be read: .*Topic authorization failed"),
        ("WRITE", "name", r"Transactional Id authorization failed.* \(it needs WRITE on the transactional id"),
    ],
)
def test_what_is_not_allowed_is_said(tmp_path: Path, guarded: str, what: str, which: str, said: str) -> None:
    id_ = uuid.uuid4().hex[:8]
    name = {one: f"{one}-{id_}" for one in ("output", "progress", "name")}
    staging, topic = Staging(tmp_path, guarded), TopicMaker(guarded)
    staging.config(f"deliver: {{kafka: {{name: {name['name']}, progress_topic: {name['progress']}}}}}\n")
    topic.create(name["output"])
    topic.create(name["progress"], cleanup_policy="compact")
    staging.sync([[row(name["output"], 1)]])
    if (what, which) == ("READ", "progress"):  # nothing is to be read before
        staging.deliver()
    kind = ResourceType.TRANSACTIONAL_ID if which == "name" else ResourceType.TOPIC
    rule(guarded, kind, name[which], AclOperation[what], AclPermissionType.DENY)
    with pytest.raises(ZyncError, match=said):
        staging.deliver()


def test_a_transaction_that_may_not_last_so_long_is_the_brokers_to_allow(tmp_path: Path, broker: str) -> None:
    staging, name = Staging(tmp_path, broker), f"output-{uuid.uuid4().hex[:8]}"
    staging.config("deliver: {kafka: {properties: {transaction.timeout.ms: 86400000}}}\n")
    staging.sync([[row(name, 1)]])
    with pytest.raises(ZyncError, match=r"timeout.* \(the brokers' transaction.max.timeout.ms is less\)"):
        staging.deliver()
