"""Transactions that go to quarantine, and the limit on them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zync.errors import DataError
from zync.text import amount


@dataclass(frozen=True)
class Failure:
    """A transaction (by its seqno) that goes to quarantine, with the reason and, where one is at fault, the rule."""

    seqno: int
    reason: str
    rule: str | None = None


def check_limit(
    limit: int, failures: Sequence[Failure], faulty: int = 0, first_faulty: Callable[[], Failure] | None = None
) -> None:
    """DataError when one sync would set aside more than `limit`.

    `failures`: transactions; `faulty`: records that belong to none, counted beside them, the first of which is asked
    for where it is to be told of.
    """
    if len(failures) + faulty <= limit:
        return
    counts = [amount(faulty, "record")] if faulty else []
    what = " and ".join([*counts, f"at least {amount(len(failures), 'transaction')}"] if failures else counts)
    first = failures[0] if failures else first_faulty() if first_faulty else None
    by = f" by rule {first.rule}" if first and first.rule else ""
    one = "transaction" if failures else "record"
    example = f"; the first {one}, of seqno {first.seqno}{by}: {first.reason.rstrip('.')}" if first else ""
    msg = (
        f"more than {limit} would go to quarantine ({what}), so nothing was committed{example}. Mend the rule or "
        "the config (`zync check`), or raise limits.max_quarantined"
    )
    raise DataError(msg)
