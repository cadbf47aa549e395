"""The kinds of staging's rows, by what they have in common. `zync.staging.table` says what each kind is."""

COMPLETED_KINDS = ("done", "released")
"""Transactions whose output rows are in staging."""
UNDECIDED_KINDS = ("quarantined", "late")
"""What waits for an operator's decision (`zync dlq`)."""
SETTLED_KINDS = ("done", "quarantined", "released", "discarded")
"""Transactions that are settled: later records of them are late."""
IN_FLIGHT_KINDS = ("pending", "expired")
"""Transactions in flight."""
FOLLOW_UP_KINDS = ("late", "duplicate", "ignored")
"""Records that come after their transaction was settled or set aside (late, duplicate), or are of none (ignored)."""
SET_ASIDE_KINDS = ("late", "duplicate", "quarantined", "discarded", "ignored")
"""What is in staging and does not go out, in the order in which it is listed."""
KINDS = (
    *("output", "done", "pending", "expired", "late", "duplicate", "quarantined", "released", "discarded"),
    *("ignored", "trimmed", "cursor"),
)
"""All kinds."""
