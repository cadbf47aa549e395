"""What can go wrong, for the person who reads it: what was found, where, and what to do."""

from typing import ClassVar

INTERRUPTED = 130
"""What a command that Ctrl-C ended exits with, as shells have it."""


class ZyncError(Exception):
    """Something zync could not do. `exit_code` is what the command exits with."""

    exit_code: ClassVar[int] = 1


class UsageError(ZyncError):
    """The user's mistake: a bad option, config, rule or input file. Nothing was written."""

    exit_code = 2


class OwnedError(ZyncError):
    """Another writer owns the table. Nothing was written."""

    exit_code = 3


class GapError(ZyncError):
    """Records that were never read are gone from Kafka: retention took them, or the topic was made anew."""


class DataError(ZyncError):
    """Records or transactions are at fault, not the surroundings."""


class CommitUnknownError(ZyncError):
    """A commit was tried and it is not known whether it landed: look before trying again."""
