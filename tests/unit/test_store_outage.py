"""Which errors of a store are mended by waiting, and which are not."""

import threading

import pytest

from zync.errors import CommitRefusedError, FormatError, TableLostError, UsageError, ZyncError
from zync.lake.outage import StoreWatch
from zync.lake.store_errors import outage, texts

_DELTA = "Generic S3 error: Error performing GET http://localhost:1/lake/raw in 2s - "
_ARROW = "When reading information for key 'raw' in bucket 'lake': AWS Error {} during HeadObject operation: {}"
_SPARK = "getFileStatus on s3://lake/raw: software.amazon.awssdk.services.s3.model.S3Exception: {}"
PASSING = (
    f"{_DELTA}HTTP error: error sending request for url: Connection refused",
    f"{_DELTA}Server returned non-2xx status code: 503 Service Unavailable: SlowDown",
    _ARROW.format("NETWORK_CONNECTION", "curlCode: 28, Timeout was reached"),
    _ARROW.format("SLOW_DOWN", "Please reduce your request rate."),
    _SPARK.format("Unable to execute HTTP request: Read timed out"),
    _SPARK.format("(Service: S3, Status Code: 503)"),
)
LASTING = (
    f"{_DELTA}Server returned non-2xx status code: 403 Forbidden: AccessDenied",
    f"{_DELTA}Server returned non-2xx status code: 404 Not Found: NoSuchBucket",
    f"{_DELTA}Server returned non-2xx status code: 400 Bad Request: ExpiredToken",
    _ARROW.format("ACCESS_DENIED", "No response body."),
    _SPARK.format("(Service: S3, Status Code: 403) AccessDenied"),
    "a record says that its connection timed out: Connection reset",
)


@pytest.mark.parametrize("text", PASSING)
def test_a_store_that_is_away_or_overloaded_passes(text: str) -> None:
    reason = outage(text)
    assert reason
    assert "run the command again" not in reason


@pytest.mark.parametrize("text", LASTING)
def test_other_errors_last(text: str) -> None:
    assert outage(text) is None


_CLOUDS = {
    "gs": "Generic GCS error: Error performing {} https://storage.googleapis.com/storage/v1/b/lake/o in 2s - {}",
    "azure": "Generic MicrosoftAzure error: Error performing {} https://a.blob.core.windows.net/lake in 2s - {}",
}


@pytest.mark.parametrize("store", _CLOUDS)
def test_other_clouds_are_away_overloaded_or_refuse_too(store: str) -> None:
    away = "HTTP error: error sending request for url: Connection refused"
    busy = "Server returned non-2xx status code: 503 Service Unavailable: "
    refused = "Server returned non-2xx status code: 403 Forbidden: "
    answers = [outage(_CLOUDS[store].format("GET", text), store) is not None for text in (away, busy, refused)]
    assert answers == [True, True, False]


def caused(error: ZyncError, text: str) -> ZyncError:
    """The error as it is raised, with its cause."""
    try:
        raise error from OSError(text)
    except ZyncError as raised:
        return raised


def test_the_cause_tells_and_a_lost_table_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = threading.Event()
    store = StoreWatch("s3://lake/raw", stop, texts)
    asked = []
    monkeypatch.setattr(store, "_ask", lambda: asked.append(1))
    monkeypatch.setattr(store, "_pause", 0.0)
    assert store.outlast(caused(CommitRefusedError("raw cannot be written"), PASSING[0]))
    assert asked
    for error in (UsageError("wrong"), TableLostError("gone"), FormatError("newer")):
        assert not store.outlast(caused(error, PASSING[0]))
    assert not store.outlast(caused(ZyncError("no permission"), LASTING[0]))
    assert not StoreWatch("/lake/raw", stop, texts).outlast(caused(ZyncError("away"), PASSING[0]))


def test_work_that_fails_again_and_again_while_the_store_answers_is_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = StoreWatch("s3://lake/raw", threading.Event(), texts)
    monkeypatch.setattr(store, "_ask", lambda: None)
    outlasted = []
    for _ in range(7):
        monkeypatch.setattr(store, "_pause", 0.0)
        outlasted.append(store.outlast(caused(ZyncError("away"), PASSING[0])))
    assert outlasted == [True] * 5 + [False] * 2
    store.worked()
    monkeypatch.setattr(store, "_pause", 0.0)
    assert store.outlast(caused(ZyncError("away"), PASSING[0]))


def test_a_process_that_is_told_to_stop_waits_for_nothing() -> None:
    stop = threading.Event()
    store = StoreWatch("s3://lake/raw", stop, texts)
    stop.set()
    assert not store.outlast(caused(ZyncError("away"), PASSING[0]))


@pytest.mark.parametrize("answer", ["the store does not answer", None])
def test_an_error_that_does_not_say_is_waited_for_if_the_store_is_away(
    monkeypatch: pytest.MonkeyPatch, answer: str | None
) -> None:
    store = StoreWatch("s3://lake/raw", threading.Event(), texts)
    answers = [answer, None]
    monkeypatch.setattr(store, "_ask", lambda: answers.pop(0))
    monkeypatch.setattr(store, "_pause", 0.0)
    error = ZyncError("the table cannot be used: Failed to commit transaction: 0")
    assert store.outlast(error) == (answer is not None)
