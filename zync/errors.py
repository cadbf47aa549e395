"""zync's errors. The message of each says what failed, where, and what to do.

`code` names the kind of an error in JSON output and in the docs. Codes are stable: programs compare them.
"""

from typing import ClassVar

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C ended, by the convention of shells."""


class ZyncError(Exception):
    """zync could not do what it was told: a service, a disk or a table failed.

    The message names which. Mend that, and run the command again: what was committed before stays, and is not done
    twice.
    """

    code: ClassVar[str] = "ZYNC-FAILED"
    exit_code: ClassVar[int] = 1


class UsageError(ZyncError):
    """An option, the config, a rule or an input file is wrong. Nothing was written.

    The message names the option, or the file and line: correct it, and run the command again.
    """

    code = "ZYNC-USAGE"
    exit_code = 2


class TableLostError(ZyncError):
    """A table was deleted, or replaced by another, while a process used it.

    Put it back as it was, and run the command again. If it was deleted on purpose, give another lake, or delete what
    was made of it, too: zync does not go on in a new table as if it were the old one.
    """

    code = "ZYNC-TABLE-LOST"
    exit_code = 4


class FormatError(ZyncError):
    """A newer zync made a table, or changed its format, and this one does not know that format.

    No row of the table was read, and nothing was written to it. Install the version that the message names, or a newer
    one, and run the command again.
    """

    code = "ZYNC-TABLE-FORMAT"
    exit_code = 2


class OwnedError(ZyncError):
    """Another process writes to the table, or maintains it, and one at a time may.

    This one stopped before its commit. Let the other finish, or stop it, and run the command again.
    """

    code = "ZYNC-OWNED"
    exit_code = 3


class GapError(ZyncError):
    """Kafka has lost records that were never read: retention deleted them, or the topic was deleted or created again.

    Or it has other records at offsets that were read, as after an unclean leader election. The message names the topic,
    and the offsets. Nothing was skipped, and nothing can bring records back that are lost: `--on-gap skip` reads on
    behind them, or what is there now, and puts the gap on record.
    """

    code = "ZYNC-GAP"


class DataError(ZyncError):
    """Records or transactions cannot be processed, and there are more of them than may be set aside.

    Nothing was committed. The message shows the first: mend the rule, the config or the producer; or raise
    `limits.max_quarantined`, and look at what is set aside with `zync dlq list`.
    """

    code = "ZYNC-DATA"


class CommitRefusedError(ZyncError):
    """A commit failed, and did not land: the table is as it was.

    The message says why. It is safe to run the command again.
    """

    code = "ZYNC-COMMIT-REFUSED"


class CommitUnknownError(ZyncError):
    """A commit failed, and the table could not be read to see whether it landed all the same.

    Make the table readable again, and look at it before you commit anything by other means. zync itself looks first:
    it is safe to run the command again.
    """

    code = "ZYNC-COMMIT-UNKNOWN"


class ConflictError(ZyncError):
    """Another process keeps committing to a delivered table, so that the delivery's own commits are refused.

    Find the other process and stop it, then run the command again: it goes on with the same rows.
    """

    code = "ZYNC-TABLE-CONFLICT"
