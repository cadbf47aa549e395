"""What `--max-memory` allows."""

import pytest

from zync.ingest import memory
from zync.raw.batch import MOST_BYTES


@pytest.mark.parametrize("gigabytes", [0.3, 1, 16, 64, 1_000])
def test_a_batch_fits_into_one_arrow_chunk_however_much_memory_there_is(gigabytes: float) -> None:
    share = memory.share(int(gigabytes * 10**9))
    gathered, one_more_call = 2 * share, share
    assert 0 < gathered + one_more_call <= MOST_BYTES


@pytest.mark.parametrize("gigabytes", [0.3, 1, 1_000])
def test_librdkafka_is_given_what_it_takes(gigabytes: float) -> None:
    properties = memory.properties(memory.share(int(gigabytes * 10**9)))
    assert 1 <= int(properties["queued.max.messages.kbytes"]) <= 2_097_151
    assert 1_000_000 <= int(properties["fetch.max.bytes"]) <= 2_147_483_135
