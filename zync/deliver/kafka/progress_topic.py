"""The topic in which a delivery says how far it is: what is read there, and whether that can be gone on from."""

import logging
from dataclasses import dataclass

from deltalake import DeltaTable

from zync.deliver.kafka.producer import Message
from zync.deliver.kafka.progress import Progress, read
from zync.errors import UsageError, ZyncError
from zync.kafka.admin import Brokers
from zync.kafka.partition import Source
from zync.log import event
from zync.staging.bookkeeping import Cursor

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class ProgressTopic:
    """The progress topic as the delivery of that name uses it, by Kafka's `properties`."""

    properties: dict[str, str]
    topic: str
    name: str
    brokers: Brokers

    def read(self, *, final: bool) -> Progress | None:
        """What it says; None where it says nothing of this delivery yet.

        `final`: with what is not committed yet, which is waited for; it is final once our sender is the only one.
        """
        place = Source(self.topic, 0)
        end = self.brokers.end(place) if final else self.brokers.bounds([place])[place].stable
        return read(self.properties, self.topic, self.name, end)

    def read_for(self, staging: DeltaTable, cursor: Cursor, *, final: bool) -> Progress | None:
        """`read`, of the delivery of that staging. UsageError, ZyncError where it is of another, or of an older one."""
        found, staging_id = self.read(final=final), str(staging.metadata().id)
        if found and found.staging != staging_id:
            msg = (
                f"the delivery {self.name} is of another staging (id {found.staging}, through sync {found.sync}) than "
                f"{staging.table_uri} (id {staging_id}): give that one; or, to send all of this one, another "
                "deliver.kafka.name"
            )
            raise UsageError(msg)
        if found and found.sync > cursor.sync:
            msg = (
                f"staging at {staging.table_uri} ends with sync {cursor.sync}, and was delivered through sync "
                f"{found.sync}: was an older copy put in its place?"
            )
            raise ZyncError(msg)
        return found

    def record(self, progress: Progress) -> Message:
        """What it is to say."""
        return (self.topic, self.name, progress.as_json(), [])

    def forgotten(self, progress: Progress) -> UsageError:
        """That it does not say any more what it did: `progress`, or one Kafka transaction more."""
        msg = (
            f"topic {self.topic} was deleted, or made anew, and does not say any more how far the delivery {self.name} "
            f"is: it was through sync {progress.sync} (seqno {progress.seqno}), or one Kafka transaction further. "
            "Started again, it sends all of staging. To go on from there instead, make the topic, compacted, with this "
            f"record: key {self.name}, value {progress.as_json().decode()}"
        )
        return UsageError(msg)

    def warn_from_the_start(self, filled: list[str]) -> None:
        """Tells that all of staging is sent, although those topics have records."""
        log.warning(
            "there is no progress of the delivery %s in topic %s, so all of staging is sent; topics that have "
            "records: %s. If the rows are there, stop this, and bring back that topic or deliver.kafka.name",
            self.name,
            self.topic,
            ", ".join(filled),
            extra=event("sent_from_the_start", delivery=self.name, topics=filled),
        )

    def warn_put_back(self) -> None:
        """Tells that it is told again how far the delivery is."""
        what = "topic %s was deleted, or made anew: it is told again how far the delivery %s is"
        log.warning(what, self.topic, self.name, extra=event("progress_put_back", delivery=self.name))
