"""`zync status` says of each number what it counts."""

from zync.operate.status import Status, describe


def test_records_that_are_set_aside_are_told_from_transactions_to_decide_about() -> None:
    status = Status(
        in_flight={"count": 0, "expired": 0},
        set_aside={"late": 47, "quarantined": 1},
        undecided={"quarantined": 1, "late": 10},
    )
    (line,) = (line for line in describe(status).splitlines() if line.startswith("set aside"))
    assert line == (
        "set aside late 47 records, quarantined 1 record; "
        "to decide about (`zync dlq list`): 1 transaction quarantined, 10 transactions late"
    )
