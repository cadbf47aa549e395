"""`zync doctor` beside a real Kafka: what it says of topics is what these are."""

import json

from tests.conftest import TopicMaker, zync
from tests.kafka.conftest import Lake
from zync.config.model import Config, Topic
from zync.operate.config_warnings import warnings


def test_the_topics_that_the_config_reads_are_looked_at(lake: Lake, topic: TopicMaker) -> None:
    compacted, short, fine = topic("compacted", cleanup_policy="compact"), topic(retention_ms="3600000"), topic()
    prefix = topic("tx")
    ends = f"{prefix}.transaction"
    topic.create(ends, partitions=2)
    lake.config()
    with (lake.folder / "zync.yaml").open("a") as file:
        names = ", ".join(f'{name}: {{id: "value:t"}}' for name in (compacted, short, fine, "nowhere"))
        file.write(f"topics: {{{names}}}\ntransactions: {{preset: debezium, topic: {ends}, order: commit}}\n")
    seen = zync("doctor", "--json", cwd=lake.folder, check=False)
    found = json.loads(seen.stdout)
    assert (seen.returncode, found["ok"]) == (1, False)
    assert {(one["severity"], one["about"]) for one in found["findings"]} == {
        ("error", f"topic {compacted}"),
        ("error", f"topic {ends}"),
        ("warning", f"topic {short}"),
        ("warning", "topic nowhere"),
    }
    lines = zync("doctor", cwd=lake.folder, check=False).stdout.splitlines()
    assert lines[0].startswith("error   topic ")
    assert len(lines) == 4


def test_exit_codes_tell_a_mistake_from_a_finding(lake: Lake, topic: TopicMaker) -> None:
    name = topic()
    assert zync("doctor", cwd=lake.folder, check=False).returncode == 2  # nothing to look at
    lake.config()
    with (lake.folder / "zync.yaml").open("a") as file:
        file.write(f'topics: {{{name}: {{id: "value:t"}}}}\n')
    done = zync("doctor", cwd=lake.folder)
    assert done.stdout == "nothing in the topics will hurt\n"
    (lake.folder / "shop.properties").write_text("name=shop\nprovide.transaction.metadata=false\n")
    hurt = zync("doctor", "--connector-config", "shop.properties", cwd=lake.folder, check=False)
    assert (hurt.returncode, "connector shop: provide.transaction.metadata" in hurt.stdout) == (1, True)
    for wrong in (("--connect", "http://localhost:1"), ("--connector-config", "none.json")):
        assert zync("doctor", *wrong, cwd=lake.folder, check=False).returncode == 2
    away = zync("doctor", "--connect", "http://localhost:1", "--connector", "shop", cwd=lake.folder, check=False)
    assert (away.returncode, "does not answer" in away.stderr) == (1, True)


def test_check_warns_of_topics_that_kafka_does_not_have(lake: Lake, topic: TopicMaker) -> None:
    there = topic("there")
    config = Config(
        lake=str(lake.folder),
        kafka={"bootstrap.servers": lake.broker},
        topics={there: Topic(), "mistyped": Topic(), f"^{there}": Topic(), "^none-of-these": Topic()},
    )
    missing, no_match = warnings(config)
    assert "has no topic 'mistyped' (it has " in missing
    assert "`zync sync-from` ends on that" in missing
    assert no_match.endswith("has no topic that ^none-of-these finds")
