"""The topic that stores the progress of a delivery: reads it, and checks that the delivery can continue from it."""

import logging
from dataclasses import dataclass

from deltalake import DeltaTable

from zync.deliver.kafka.producer import Message
from zync.deliver.kafka.progress import Progress, read
from zync.errors import UsageError, ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.partition import Partition
from zync.log import event
from zync.staging.bookkeeping import Cursor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProgressTopic:
    """The progress topic of a delivery.

    Attributes:
        properties: The properties of the consumer that reads it.
        topic: The topic.
        name: The name of the delivery.
        brokers: The admin client.
    """

    properties: dict[str, str]
    topic: str
    name: str
    brokers: Brokers

    def read(self, *, final: bool) -> Progress | None:
        """Reads the progress; returns None if the topic has none of this delivery yet.

        Args:
            final: Whether to read up to the high watermark, which waits for open transactions, instead of the last
                stable offset. The result is final once the delivery's sender has fenced all others.
        """
        partition = Partition(self.topic, 0)
        end = self.brokers.end(partition) if final else self.brokers.bounds([partition])[partition].stable
        return read(self.properties, self.topic, self.name, end)

    def read_for(self, staging: DeltaTable, cursor: Cursor, *, final: bool) -> Progress | None:
        """Reads the progress as `read` does, and checks that it is of `staging`.

        Raises:
            UsageError: the delivery is of another staging.
            ZyncError: the progress is beyond the cursor of staging.
        """
        progress, staging_id = self.read(final=final), str(staging.metadata().id)
        if progress and progress.staging != staging_id:
            msg = (
                f"the delivery {self.name} is of another staging (id {progress.staging}, through sync {progress.sync}) "
                f"than {staging.table_uri} (id {staging_id}): give that one; or, to send all of this one, another "
                "deliver.kafka.name"
            )
            raise UsageError(msg)
        if progress and progress.sync > cursor.sync:
            msg = (
                f"staging at {staging.table_uri} ends with sync {cursor.sync}, and was delivered through sync "
                f"{progress.sync}: was an older copy put in its place?"
            )
            raise ZyncError(msg)
        return progress

    def record(self, progress: Progress) -> Message:
        """Makes the message that stores the progress."""
        return (self.topic, self.name, progress.as_json(), [])

    def lost_error(self, progress: Progress) -> UsageError:
        """Makes the error for a topic that was deleted after it had stored `progress`, or one transaction more."""
        msg = (
            f"topic {self.topic} was deleted, or made anew, and does not say any more how far the delivery {self.name} "
            f"is: it was through sync {progress.sync} (seqno {progress.seqno}), or one Kafka transaction further. "
            "Started again, it sends all of staging. To go on from there instead, make the topic, compacted, with this "
            f"record: key {self.name}, value {progress.as_json().decode()}"
        )
        return UsageError(msg)

    def warn_from_the_start(self, filled: list[str]) -> None:
        """Logs that all of staging is sent although the topics `filled` have records."""
        log.warning(
            "there is no progress of the delivery %s in topic %s, so all of staging is sent; topics that have "
            "records: %s. If the rows are there, stop this, and bring back that topic or deliver.kafka.name",
            self.name,
            self.topic,
            ", ".join(filled),
            extra=event("sent_from_the_start", delivery=self.name, topics=filled),
        )

    def warn_put_back(self) -> None:
        """Logs that the progress is stored again, because the topic was deleted or made anew."""
        warning = "topic %s was deleted, or made anew: it is told again how far the delivery %s is"
        log.warning(warning, self.topic, self.name, extra=event("progress_put_back", delivery=self.name))
