"""Traces: off without a variable, to a real collector with it, and the work goes on whatever the collector does."""

import threading
import time
from importlib.util import find_spec

import pytest

from tests.observe.receivers import Receiver, attributes, process, receiving

WORK = 'with span("sync", records=3, version=None) as current:\n    with span("sync.read"):\n        pass\n'
LOADED = "print(sorted(name for name in sys.modules if name.startswith(('opentelemetry', 'openlineage'))))"
NOWHERE = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://localhost:9"}


@pytest.mark.parametrize(
    "env",
    [
        {},
        {**NOWHERE, "OTEL_SDK_DISABLED": "true"},
        {**NOWHERE, "OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_SERVICE_NAME": "shop"},
    ],
)
def test_without_a_variable_that_asks_for_them_nothing_is_even_imported(env: dict[str, str]) -> None:
    assert process(WORK + LOADED, env)[0] == "[]\n"


@pytest.mark.parametrize("variable", ["OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"])
def test_spans_arrive_with_their_parents_and_attributes(variable: str) -> None:
    with receiving() as received:
        path = "/v1/traces" if "TRACES" in variable else ""
        said, _ = process(WORK, {variable: f"http://localhost:{received.port}{path}"})
    sync, read = received.spans
    assert (sync.name, attributes(sync)) == ("sync", {"zync.records": 3})
    assert (read.name, read.parent_span_id) == ("sync.read", sync.span_id)
    assert said == ""


@pytest.mark.parametrize(
    ("env", "name"),
    [
        ({}, "zync"),
        ({"OTEL_SERVICE_NAME": "shop"}, "shop"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop"}, "shop"),
    ],
)
def test_the_name_of_the_service_is_the_environments_or_zync(env: dict[str, str], name: str) -> None:
    with receiving() as received:
        process(WORK, {**received.traces, **env})
    assert [resource["service.name"] for resource in received.resources()] == [name]


def test_an_error_is_its_code_and_class_and_not_its_message() -> None:
    code = """
        for error in (UsageError("hunter2"), ValueError("hunter2"), KeyboardInterrupt("hunter2")):
            try:
                with span("sync"):
                    raise error
            except BaseException as raised:
                assert raised is error
        """
    with receiving() as received:
        process(code, received.traces)
    found = [(span.status.code, span.status.message, attributes(span)) for span in received.spans]
    assert found == [
        (2, "ZYNC-USAGE UsageError", {"error.type": "UsageError"}),
        (2, "ValueError", {"error.type": "ValueError"}),
        (2, "KeyboardInterrupt", {"error.type": "KeyboardInterrupt"}),
    ]
    assert b"hunter2" not in received.requests[0].SerializeToString()


MANY = 'for _ in range(3000):\n    with span("sync"):\n        pass\ntime.sleep(1)\n'


def test_a_collector_that_is_away_costs_one_warning_and_at_most_two_seconds() -> None:
    said, seconds = process(MANY, NOWHERE)
    assert said == "zync: the collector of traces does not answer; the work goes on without it\n"
    assert seconds < 4


def test_a_collector_that_hangs_costs_one_warning_and_at_most_two_seconds() -> None:
    with receiving(hanging=True) as received:
        said, seconds = process(MANY, received.traces)
    assert received.asked
    assert said == "zync: the collector of traces does not answer; the work goes on without it\n"
    assert seconds < 4


def answer_again(received: Receiver) -> None:
    """Has a receiver that hangs answer, once a request has waited for longer than the process does."""
    while not received.asked:
        time.sleep(0.05)
    time.sleep(1.5)
    received.hanging = False


def test_a_collector_that_comes_back_gets_the_spans_since() -> None:
    code = """
        for turn in range(10):
            with span("turn", turn=turn):
                pass
            time.sleep(0.5)
        """
    env = {"OTEL_BSP_SCHEDULE_DELAY": "100", "OTEL_EXPORTER_OTLP_TIMEOUT": "1"}
    with receiving(hanging=True) as received:
        threading.Thread(target=answer_again, args=(received,)).start()
        said, _ = process(code, {**received.traces, **env})
    assert attributes(received.spans[-1]) == {"zync.turn": 9}
    assert said.splitlines() == [
        "zync: the collector of traces does not answer; the work goes on without it",
        "zync: the collector of traces answers again",
    ]


@pytest.mark.parametrize("missing", ["opentelemetry", "opentelemetry.sdk"])
def test_without_the_extra_one_line_names_it(missing: str) -> None:
    said, _ = process(f'sys.modules["{missing}"] = None\n{WORK}{WORK}', NOWHERE)
    assert said.count("\n") == 1
    assert "pip install 'zync[traces]'" in said


def test_a_provider_that_is_not_there_stops_nothing() -> None:
    said, _ = process(f"{WORK}{WORK}print('done')", {**NOWHERE, "OTEL_PYTHON_TRACER_PROVIDER": "none-of-that-name"})
    assert said.splitlines()[0] == "done"
    assert "Error" not in said


@pytest.mark.skipif(find_spec("grpc") is None, reason="needs grpc, which the development environment has")
def test_a_protocol_whose_exporter_is_not_installed_is_told_with_its_package() -> None:
    said, _ = process(WORK, {**NOWHERE, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"})
    assert said.count("\n") == 1
    assert "pip install opentelemetry-exporter-otlp-proto-grpc" in said


def test_in_a_program_with_traces_of_its_own_spans_go_where_that_says() -> None:
    code = """
        from opentelemetry import trace
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import SimpleSpanProcessor
        from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
        exporter, provider = InMemorySpanExporter(), TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        with trace.get_tracer("program").start_as_current_span("job"), span("sync"):
            pass
        sync, job = exporter.get_finished_spans()
        print(sync.name, sync.parent.span_id == job.context.span_id)
        """
    assert process(code, {})[0] == "sync True\n"
