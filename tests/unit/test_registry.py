"""A schema registry that fails for a moment, and one that fails for good."""

import time
from datetime import timedelta

import pytest

from tests.failing_registry import (
    Answer,
    after,
    closes,
    dribbles,
    gives,
    resets,
    serving,
    stalls,
    status,
    stops_halfway,
)
from zync.config.model import RegistryAccess
from zync.errors import ZyncError
from zync.formats import registry as transport
from zync.formats.registry import Registry, RegistryAwayError

STRING = '"string"'


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has attempts follow each other without a pause."""
    monkeypatch.setattr(transport, "_RETRY_AFTER", (0.0, 0.0))


def text_of(url: str, seconds: float = 5) -> str:
    schema = Registry(RegistryAccess(url, basic_auth="me:secret", timeout=timedelta(seconds=seconds))).schema(1)
    assert schema is not None
    return schema.text


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize("failure", [closes, resets, stops_halfway, *map(status, (408, 429, 500, 502, 503, 504))])
def test_a_failure_that_passes_is_not_noticed(failure: Answer) -> None:
    with serving([failure, failure, gives(STRING)]) as (url, asked):
        assert text_of(url) == STRING
    assert asked == ["/schemas/ids/1"] * 3


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("failure", "gist"),
    [
        (closes, "does not answer .*nothing was changed; try again"),
        (resets, "does not answer .*reset by peer.*try again"),
        (stops_halfway, "does not answer .*IncompleteRead.*try again"),
        (status(503), "answers 503 Service Unavailable to schemas/ids/1"),
        (status(500), "answers 500 Internal Server Error to schemas/ids/1"),
    ],
)
def test_a_failure_that_lasts_is_told(failure: Answer, gist: str) -> None:
    with serving([failure]) as (url, asked), pytest.raises(RegistryAwayError, match=gist) as raised:
        text_of(url)
    assert len(asked) == 3
    assert "secret" not in str(raised.value)


def test_a_slow_registry_has_as_long_as_the_config_says() -> None:
    with serving([after(0.5, gives(STRING))]) as (url, _):
        assert text_of(url) == STRING


def test_all_attempts_together_take_no_longer_than_the_config_says() -> None:
    with serving([resets, after(0.3, status(503)), after(3, gives(STRING))]) as (url, asked):
        start = time.monotonic()
        with pytest.raises(RegistryAwayError, match="does not answer"):
            text_of(url, seconds=1)
        assert time.monotonic() - start < 2
    assert len(asked) == 3


@pytest.mark.parametrize("slow", [dribbles, stalls])
def test_an_answer_that_dribbles_or_stalls_has_no_longer_either(slow: Answer) -> None:
    """Of the second that it has, the answer's head takes most."""
    with serving([after(0.8, slow)]) as (url, _):
        start = time.monotonic()
        with pytest.raises(RegistryAwayError, match="not all of the answer came within 1 s"):
            text_of(url, seconds=1)
        assert time.monotonic() - start < 1.6


def test_an_answer_that_no_repeating_would_change_is_asked_for_once() -> None:
    with serving([status(401), gives(STRING)]) as (url, asked), pytest.raises(ZyncError, match="answers 401"):
        text_of(url)
    assert len(asked) == 1
