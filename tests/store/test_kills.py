"""Parts of a pipeline on a lake in a store, killed at any moment again and again, lose and repeat nothing."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import TopicMaker, zync
from tests.kafka.conftest import wait_until
from tests.store.pipeline import PARTS, Pipeline

KILLS = int(os.environ.get("ZYNC_TEST_STORE_KILLS", "3"))
"""How often each part is killed."""
SEED = int(os.environ.get("ZYNC_TEST_SOAK_SEED", random.randrange(1 << 32)))


@pytest.mark.timeout(600 + 120 * KILLS)
@pytest.mark.usefixtures("s3")
def test_parts_that_are_killed_again_and_again_lose_and_repeat_nothing(topic: TopicMaker, tmp_path: Path) -> None:
    """Each at a moment of its own, while records come, and started again at once."""
    pipeline, chance = Pipeline(tmp_path, topic), random.Random(SEED)
    processes = {part: pipeline.start(part, os.environ) for part in PARTS}
    try:
        for _ in range(KILLS):
            pipeline.send()
            wait_until(pipeline.is_delivered, 240)
            began = time.monotonic()
            for seconds, part in sorted((chance.uniform(0, 6), part) for part in PARTS):
                while time.monotonic() - began < seconds:
                    pipeline.send(2)
                    time.sleep(0.2)
                os.killpg(processes[part].pid, signal.SIGKILL)
                processes[part].wait()
                processes[part] = pipeline.start(part, os.environ)
        wait_until(pipeline.is_delivered, 240)
        assert {part: process.poll() for part, process in processes.items()} == dict.fromkeys(PARTS), pipeline.log()
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        assert [process.wait(60) for process in processes.values()] == [0, 0, 0], pipeline.log()
    finally:
        for process in processes.values():
            process.kill()
    print(f"seed {SEED}, {pipeline.sent} transactions, {KILLS} kills of each part")
    pipeline.assert_each_row_is_there_once()
    verified = zync("verify", "--json", cwd=tmp_path, check=False)
    assert verified.returncode == 0, verified.stdout + verified.stderr
