"""Failed transactions that go to quarantine, and the limit on their number."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from zync.errors import DataError
from zync.text import amount


@dataclass(frozen=True)
class Failure:
    """A transaction that goes to quarantine.

    Attributes:
        seqno: the transaction's seqno.
        reason: the error text.
        rule: the rule that failed on it; None where no rule did.
    """

    seqno: int
    reason: str
    rule: str | None = None


def check_limit(
    limit: int, failures: Sequence[Failure], bad_records: int = 0, first_bad_record: Callable[[], Failure] | None = None
) -> None:
    """Checks that one sync quarantines no more than `limit` transactions and records.

    Args:
        limit: the most transactions and records together, by `limits.max_quarantined` of the config.
        failures: transactions to quarantine.
        bad_records: the number of bad records that belong to no transaction; they count too.
        first_bad_record: returns the first of these records. It is called only where the message needs it.

    Raises:
        DataError: the limit is exceeded.
    """
    if len(failures) + bad_records <= limit:
        return
    counts = [amount(bad_records, "record")] if bad_records else []
    what = " and ".join([*counts, f"at least {amount(len(failures), 'transaction')}"] if failures else counts)
    first = failures[0] if failures else first_bad_record() if first_bad_record else None
    by = f" by rule {first.rule}" if first and first.rule else ""
    noun = "transaction" if failures else "record"
    example = f"; the first {noun}, of seqno {first.seqno}{by}: {first.reason.rstrip('.')}" if first else ""
    msg = (
        f"more than {limit} would go to quarantine ({what}), so nothing was committed{example}. Mend the rule or "
        "the config (`zync check`), or raise limits.max_quarantined"
    )
    raise DataError(msg)
