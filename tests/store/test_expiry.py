"""Session keys that expire: a process ends by name, and what starts it anew has it read the new ones."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TopicMaker, start, zync
from tests.kafka.conftest import wait_until
from tests.store.pipeline import Pipeline
from tests.store.proxy import Answer, Request, running_proxy

_EXPIRED = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"


class Tokens:
    """Refuses requests with another session token than the valid one, as S3 does."""

    def __init__(self) -> None:
        self.valid, self.refused = "token-1", 0

    def __call__(self, request: Request, _: Callable[[], None]) -> Answer | None:
        headers = {name.lower(): value for name, value in request.headers.items()}
        if headers.get("x-amz-security-token") == self.valid:
            return None
        self.refused += 1
        return Answer(400, b"" if request.method == "HEAD" else _EXPIRED, (("Content-Type", "application/xml"),))


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("s3")
def test_keys_that_expire_are_read_anew_by_the_parts_that_run_starts_again(
    topic: TopicMaker, environment: dict[str, str], tmp_path: Path
) -> None:
    storage = "{access_key_id: me, secret_access_key: s, session_token: '${file:token}'}"
    pipeline = Pipeline(tmp_path, topic, f"storage: {storage}\n")
    with running_proxy(environment["AWS_ENDPOINT_URL"]) as proxy:
        proxy.rule = tokens = Tokens()
        (tmp_path / "token").write_text(tokens.valid)
        running = start(
            "run", "--commit-every", "300ms", cwd=tmp_path, env={**os.environ, "AWS_ENDPOINT_URL": proxy.url}
        )
        try:
            pipeline.send()
            wait_until(pipeline.is_delivered, 240)
            tokens.valid = "token-2"
            pipeline.send()
            wait_until(lambda: "credentials" in pipeline.log(), 120)
            (tmp_path / "token").write_text(tokens.valid)
            wait_until(pipeline.is_delivered, 240)
            assert running.poll() is None
            running.send_signal(signal.SIGINT)
            running.wait(120)
        finally:
            running.kill()
    assert tokens.refused
    assert "token-1" not in pipeline.log()
    pipeline.assert_each_row_is_there_once()
    zync("verify", cwd=tmp_path, env=dict(os.environ))  # in a process of its own, which alone has the config's keys
