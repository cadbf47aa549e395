"""The optimistic commit: Delta takes it only if the table is still at the version that the commit was planned from.

An error does not mean that nothing landed: an answer may be lost, or a hook may fail after the commit. So after an
error the table is opened anew, and the log is searched for the commit's nonce. An attempt ends in one of these ways:

- It returns `Landed`: the commit is part of the table.
- It returns `Refused`: the commit did not land, because another process changed the table first. The caller compares
  its plan with the table as it is now, and tries again.
- It raises CommitRefusedError: the commit did not land, and nothing else did: the disk is full, or a permission is
  missing.
- It raises CommitUnknownError: the table cannot be read, so whether the commit landed is not known.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from zync.errors import CommitRefusedError, CommitUnknownError, UsageError
from zync.lake.delta_errors import is_of_a_table, is_of_delta_rs
from zync.lake.delta_log import commit_infos
from zync.lake.paths import locate
from zync.lake.table import NO_HOOKS, commit_properties, first_line, open_any_format
from zync.lake.table_format import check_format

_NONCE = "nonce"
"""The field of `commitInfo` that holds a commit's nonce."""


@dataclass(frozen=True)
class Landed:
    """The commit is part of the table.

    Attributes:
        table: The handle of the attempt; a newly opened handle if the attempt raised an error after the commit.
    """

    table: DeltaTable


@dataclass(frozen=True)
class Refused:
    """The commit did not land, because the table changed after the commit was planned. It is safe to try again.

    Attributes:
        table: The table at its newest version; None if it was deleted.
        error: The error of the attempt.
    """

    table: DeltaTable | None
    error: Exception


@dataclass(frozen=True)
class Commit:
    """A commit to a table, before it is attempted.

    Attributes:
        table: The handle that the commit was planned from. Delta refuses the commit if there is a newer version.
        transactions: The versions of the `txn` actions by application id.
        nonce: A random id, by which the commit is recognized in the log.
        failure: The beginning of the message if nothing landed, which the cause follows.
        name: What the commit is, for the message if its outcome is unknown.
        successor: Who finds out later whether it landed, for the same message.
        others: The number of actions that are no `txn` actions; None if it is not known.
        metadata: Further fields of the commit's `commitInfo`.
    """

    table: DeltaTable
    transactions: Mapping[str, int]
    nonce: str
    failure: str
    name: str
    successor: str
    others: int | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    def attempt(self, write: Callable[[CommitProperties], None]) -> Landed | Refused:
        """Attempts the commit once.

        Args:
            write: Makes the commit on `table` with these properties. A ZyncError that it raises ends the attempt; it
                must raise it before it commits.

        Raises:
            CommitRefusedError: The commit did not land, and the table is as it was.
            CommitUnknownError: The commit failed, and the table cannot be read to see whether it landed.
            FormatError: The commit did not land, because a newer zync changed the table's format.
        """
        version = self.table.version()
        fields = {**self.metadata, _NONCE: self.nonce}
        properties = commit_properties(dict(self.transactions), others=self.others, **fields)
        try:
            write(properties)
        except Exception as error:
            if not is_of_delta_rs(error):
                raise
            return self._resolve(error, version)
        return Landed(self.table)

    def _resolve(self, error: Exception, version: int) -> Landed | Refused:
        """Finds out what became of a failed attempt at the version after `version`."""
        try:
            newest = open_any_format(locate(self.table.table_uri, ""))
            new_versions = newest.version() - version if newest else 0
            infos = commit_infos(newest, version) if newest and new_versions > 0 else []
        except UsageError:  # the location has something else by now
            newest = None
        except Exception as read_error:
            if not is_of_a_table(read_error):
                raise
            msg = (
                f"{self.name} failed ({first_line(error)}) and the table cannot be read ({first_line(read_error)}): "
                f"whether it landed is not known; {self.successor} will see"
            )
            raise CommitUnknownError(msg) from error
        if newest is None:
            return Refused(None, error)
        if any(info.get(_NONCE) == self.nonce for info in infos):
            return Landed(newest)
        if not new_versions:
            msg = f"{self.failure}: {first_line(error)}"
            raise CommitRefusedError(msg) from error
        check_format(newest)
        return Refused(newest, error)


def change_files(table: DeltaTable, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties) -> None:
    """Commits that files are added to and removed from the table. The handle stays at its version."""
    table.create_write_transaction(
        list(actions),
        mode="append",
        schema=table.schema(),
        commit_properties=properties,
        post_commithook_properties=NO_HOOKS,
    )
