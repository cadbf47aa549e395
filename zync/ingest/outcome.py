"""What a run of `sync-from` did."""

from dataclasses import dataclass, field


@dataclass
class Ingested:
    """What a run of sync-from did.

    `seconds`: from joining the group to leaving it; `busy`: from the first record to the last commit.
    `lag`: records (offsets) between raw's positions and Kafka's ends, at the end.
    """

    records: int = 0
    num_bytes: int = 0
    seconds: float = 0.0
    busy: float = 0.0
    commits: int = 0
    retries: int = 0
    rebalances: int = 0
    lag: int | None = None
    first_seqno: int | None = None
    positions: dict[str, int] = field(default_factory=dict)
