"""The result of `sync-from`."""

from dataclasses import dataclass, field


@dataclass
class Ingested:
    """The result of `sync-from`.

    Attributes:
        records: Rows appended to raw.
        seconds: The time from joining the group to leaving it.
        busy: The seconds from the first record to the last commit.
        lag: Offsets between raw's positions and Kafka's ends when it ended; None if no broker answered.
        first_seqno: Raw's next seqno before its first commit, which is that of the commit's first row if it has rows;
            None if it committed nothing.
        positions: Raw's positions at the end, by `topic/partition`.
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

    @property
    def rate(self) -> float:
        """Records a second."""
        return self.records / self.seconds if self.seconds else 0.0
