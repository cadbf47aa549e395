"""The table properties that a config may give delivered tables: those of Delta that deliveries were tested with."""

import difflib
import re

APPEND_ONLY = "delta.appendOnly"
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"
BOOLEAN = "true|false"
COUNT = "[1-9][0-9]{0,8}"
TEXT = "[^\\x00]+"
_WEEK = r"interval (?:[7-9]|[1-9][0-9]{1,4}) days"
_MONTH = r"interval (?:3[0-9]|[4-9][0-9]|[1-9][0-9]{2,4}) days"
_MEANINGS = {
    BOOLEAN: "true or false",
    COUNT: "a whole number from 1",
    TEXT: "a text",
    _WEEK: "7 days or more, as batches and readers take a while: 'interval 7 days'",
    _MONTH: "30 days or more, for which snapshots are kept: 'interval 30 days'",
}
"""What error messages say of a pattern."""
DELTA_PROPERTIES = {
    APPEND_ONLY: BOOLEAN,
    "delta.autoOptimize.autoCompact": BOOLEAN,
    "delta.autoOptimize.optimizeWrite": BOOLEAN,
    "delta.checkpointInterval": COUNT,
    "delta.compatibility.symlinkFormatManifest.enabled": BOOLEAN,
    "delta.dataSkippingNumIndexedCols": COUNT,
    "delta.dataSkippingStatsColumns": TEXT,
    "delta.deletedFileRetentionDuration": _WEEK,
    "delta.enableChangeDataFeed": BOOLEAN,
    "delta.enableExpiredLogCleanup": BOOLEAN,
    "delta.logRetentionDuration": _MONTH,
    "delta.randomizeFilePrefixes": BOOLEAN,
}
"""The properties of Delta that a config may set, each with the pattern of its values."""
OWN_PROPERTY = r"(?!(?:[dD][eE][lL][tT][aA]|[zZ][yY][nN][cC])\.)[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]+)+"
"""The pattern of the names of properties that mean nothing to Delta: they have a prefix of the user's."""
_UNREAD = "delta-rs does not read the rows of a table with it"
_REFUSED = {
    TRANSACTION_RETENTION: "Delta would forget the `txn` by which zync knows what a table has",
    "delta.checkpointPolicy": _UNREAD,
    "delta.enableDeletionVectors": _UNREAD,
    "delta.enableTypeWidening": _UNREAD,
}
"""Properties that a config cannot set, with the reason."""


def property_error(name: str, value: str) -> str | None:
    """Returns why a config cannot set a table property to this value; None if it can."""
    if pattern := DELTA_PROPERTIES.get(name):
        return None if re.fullmatch(pattern, value) else f"must be {_MEANINGS[pattern]}"
    if re.fullmatch(OWN_PROPERTY, name):
        return None
    if reason := _REFUSED.get(name):
        return f"is not for delivered tables: {reason}. Take it out"
    if name.lower().startswith("zync."):
        return "is of zync's own: take it out"
    if name.lower().startswith("delta."):
        matches = difflib.get_close_matches(name, DELTA_PROPERTIES, n=1)
        hint = f"did you mean {matches[0]!r}?" if matches else f"those are {', '.join(DELTA_PROPERTIES)}"
        return f"is no property that zync sets for Delta: {hint}"
    return "needs a prefix, like 'team.owner'"
