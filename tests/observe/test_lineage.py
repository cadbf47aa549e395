"""Lineage: off without a variable, valid events to a real server with it, and the work goes on whatever it does."""

from typing import Any

import pytest

from tests.observe.receivers import Receiver, assert_valid, process, receiving
from tests.observe.test_traces import LOADED

WORK = """
with run_of("sync", "/lake/staging", is_endless=True) as run:
    target = table("/lake/staging", (("seqno", "int64"),))
    for _ in range(3):
        run.begin(lambda: ([table("/lake/raw")], [target]))
        run.wrote(lambda: {target: 5})
"""
NOWHERE = {"OPENLINEAGE_URL": "http://localhost:9"}


@pytest.mark.parametrize("env", [{}, {**NOWHERE, "OPENLINEAGE_DISABLED": "true"}, {"OPENLINEAGE_NAMESPACE": "shop"}])
def test_without_a_variable_that_asks_for_it_nothing_is_even_imported(env: dict[str, str]) -> None:
    assert process(WORK + LOADED, env)[0] == "[]\n"


def sent(code: str, **env: str) -> list[dict[str, Any]]:
    with receiving() as received:
        process(code, {**received.lineage, **env})
    for event in received.events:
        assert_valid(event)
    return received.events


def test_a_run_is_told_at_its_begin_and_at_its_end_and_not_at_each_commit() -> None:
    start, complete = sent(WORK)
    assert (start["eventType"], complete["eventType"]) == ("START", "COMPLETE")
    assert start["run"] == complete["run"] | {"facets": start["run"]["facets"]}
    assert start["job"]["name"] == "sync /lake/staging"
    assert start["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    assert "outputStatistics" not in start["outputs"][0].get("outputFacets", {})
    (output,) = complete["outputs"]
    assert output["outputFacets"]["outputStatistics"]["rowCount"] == 15
    assert [column["name"] for column in output["facets"]["schema"]["fields"]] == ["seqno"]


def test_a_run_that_goes_on_is_told_each_minute() -> None:
    code = f"import zync.observe.lineage\nzync.observe.lineage._RUNNING_SECONDS = 0\n{WORK}"
    events = sent(code)
    assert [event["eventType"] for event in events] == ["START", "RUNNING", "RUNNING", "RUNNING", "COMPLETE"]
    rows = [event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] for event in events[1:]]
    assert rows == [5, 10, 15, 15]


@pytest.mark.parametrize(
    ("error", "state", "text"),
    [
        ('UsageError("hunter2")', "FAIL", "ZYNC-USAGE UsageError"),
        ('KeyboardInterrupt("hunter2")', "ABORT", "KeyboardInterrupt"),
    ],
)
def test_a_run_that_fails_says_by_what_and_without_the_message(error: str, state: str, text: str) -> None:
    code = f"""
        try:
            with run_of("sync", "/lake/staging", is_endless=False) as run:
                run.begin(lambda: ([], []))
                raise {error}
        except BaseException as raised:
            pass
        """
    _, failed = sent(code, OPENLINEAGE_NAMESPACE="shop")
    assert (failed["eventType"], failed["job"]["namespace"]) == (state, "shop")
    assert failed["run"]["facets"]["errorMessage"]["message"] == text


def test_a_run_without_work_is_not_told() -> None:
    assert sent('with run_of("sync", "/lake/staging", is_endless=False):\n    pass\n') == []


def assert_goes_on(env: dict[str, str]) -> None:
    said, seconds = process(WORK, env)
    assert said == "zync: the server of lineage does not answer; the work goes on without it\n"
    assert seconds < 4


def test_a_server_that_is_away_costs_one_warning_and_at_most_two_seconds() -> None:
    assert_goes_on(NOWHERE)


def test_a_server_that_hangs_costs_one_warning_and_at_most_two_seconds() -> None:
    with receiving(hanging=True) as received:
        assert_goes_on(received.lineage)
    assert received.asked


def test_without_the_extra_one_line_names_it() -> None:
    said, _ = process(f'sys.modules["openlineage"] = None\n{WORK}', NOWHERE)
    assert said.count("\n") == 1
    assert "pip install 'zync[lineage]'" in said


@pytest.mark.parametrize("env", [{"OPENLINEAGE_URL": "no address"}, {"OPENLINEAGE_CONFIG": "/no/file"}])
def test_a_config_that_is_wrong_stops_nothing(env: dict[str, str]) -> None:
    said, _ = process(WORK, env)
    assert said.count("\n") == 1
    assert said.startswith("zync: going on without lineage, as OpenLineage's config is wrong: ")


def test_a_config_file_may_say_where_events_go(tmp_path: Any) -> None:
    received: Receiver
    with receiving() as received:
        config = tmp_path / "openlineage.yml"
        config.write_text(f"transport: {{type: http, url: 'http://localhost:{received.port}'}}\n")
        process(WORK, {"OPENLINEAGE_CONFIG": str(config)})
    assert [event["eventType"] for event in received.events] == ["START", "COMPLETE"]
