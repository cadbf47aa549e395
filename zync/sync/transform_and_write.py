"""Stage transform_and_write: runs the rules, writes output and bookkeeping rows as files."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from zync.debezium.completion import LAST_ROW, LATE_END
from zync.debezium.envelope import BODY
from zync.debezium.unavailable import CLEAN, LEFT_OUT, has_envelopes
from zync.errors import UsageError, ZyncError
from zync.rules.bisect import find_failures
from zync.rules.json_text import JSON_OPTIONS
from zync.rules.run import RaisedError, bind_lookups, check_plans
from zync.rules.transform import transform
from zync.rules.truncations import Truncated, find_truncated
from zync.rules.type_changes import check_types
from zync.rules.views import VIEW_COLUMNS
from zync.spark.causes import is_of_surroundings
from zync.spark.errors import message_of, spark_errors
from zync.spark.expressions import never_failing
from zync.spark.frames import beside, local, result_of, select
from zync.spark.tuning import pace
from zync.sql import literal, options, statement
from zync.staging.commit import discard, read_back, write, write_here
from zync.sync.context import Sync, there
from zync.transactions.quarantine import Failure, check_limit

_FEW_TRANSACTIONS = 500_000
"""So many that two numbers for each fit into every task's memory: then outputs need not be sorted to find theirs."""


def transform_and_write(sync: Sync) -> Sync:
    """The rules' rows and the bookkeeping, as files; transactions that a rule fails on are found, and set aside."""
    records = there(sync.going).where("fault IS NULL AND NOT carried")
    if discarded := there(sync.assembled).summary.discarded:
        gone = local(sync.spark, [(seqno,) for seqno in discarded], "completes_at bigint")
        records = records.join(gone.hint("broadcast"), "completes_at", "left_anti")
    structs = [f"as_{number}" for number, one in enumerate(sync.config.topics.values()) if one.schema]
    structs += [LEFT_OUT, CLEAN] if has_envelopes(sync.config) else []
    records = select(
        records,
        "completes_at AS seqno",
        "seqno AS record_seqno",
        *(c for c in VIEW_COLUMNS if "seqno" not in c),
        *structs,
    )
    truncated: tuple[Truncated, ...] = ()
    if sync.truncating:
        _bind_decided(sync)
        rows, unknown = find_truncated(sync.spark, records, sync.config, _places(sync))
        truncated, failed = tuple(rows), {one.seqno for one in sync.failures}
        failures = (*sync.failures, *(one for one in unknown if one.seqno not in failed))
        check_limit(sync.limit, failures, there(sync.assembled).summary.faulty)
        sync = replace(sync, failures=failures)
    while True:
        folder = f"sync-{sync.number:08d}-{uuid.uuid4().hex[:8]}"
        try:
            columns, lookups = _write(sync, records, truncated, folder)
        except Exception as error:
            discard(sync.staging, folder)
            if not isinstance(error, (*spark_errors(), RaisedError)):
                raise
            sync = replace(sync, failures=_failures(sync, records, error))
            continue
        written = read_back(sync.staging, folder)
        if written.stray is not None:
            discard(sync.staging, folder)
            msg = (
                f"a rule makes a row of seqno {written.stray}, and no such transaction goes out now: let it select the "
                "seqno of the records that the row is made of. Nothing was committed"
            )
            raise UsageError(msg)
        return replace(sync, written=written, columns=columns, lookups=lookups)


def _failures(sync: Sync, records: DataFrame, error: Exception) -> tuple[Failure, ...]:
    """The transactions that go to quarantine, as the rules failed on `records` with that error: more than before.

    Raises:
        ZyncError: something around the rules is at fault.
        UsageError: a rule is, whatever records there are.
        DataError: more would go to quarantine than may.
    """
    try:
        if is_of_surroundings(error):
            raise error
        if not isinstance(error, RaisedError):
            check_plans(sync.spark, sync.config)
        faulty = there(sync.assembled).summary.faulty
        found = find_failures(sync.spark, records, sync.config, sync.failures, faulty, sync.limit, sync.keeper)
    except spark_errors() as around:
        msg = (
            f"the rules could not run, and no record is at fault: {message_of(around).rstrip('.')}. Nothing was "
            "committed, and nothing set aside: mend that, and sync again"
        )
        raise ZyncError(msg) from around
    if len(found) == len(sync.failures):
        raise error
    pace(sync.spark, sync.config.spark, sync.records)
    return found


def _write(sync: Sync, records: DataFrame, truncated: tuple[Truncated, ...], folder: str) -> tuple[str, dict[str, str]]:
    """Writes all rows but those that `conclude_and_commit` adds. What columns outputs have; the lookups' digests."""
    bookkeeping = _bookkeeping(sync)
    if sync.small:  # one file of all
        outputs, columns, lookups = _outputs(sync, records, truncated)
        if outputs is None:
            write_here(bookkeeping, sync.staging, folder, sync.number)
        else:
            rows = bookkeeping.unionByName(outputs, allowMissingColumns=True)
            write(rows.coalesce(1), sync.staging, folder, sync.number)
        return columns, lookups
    with ThreadPoolExecutor(1) as aside:  # Spark has something to do while it plans the rules
        writing = aside.submit(write, bookkeeping, sync.staging, f"{folder}/bookkeeping", sync.number)
        outputs, columns, lookups = _outputs(sync, records, truncated)
        if outputs is not None:
            write(outputs, sync.staging, f"{folder}/output", sync.number)
        writing.result()
    return columns, lookups


def _places(sync: Sync) -> DataFrame:
    """Where the transactions are in the source's order, and when those come that wait (sql/rules/places.sql)."""
    there(sync.going).createOrReplaceTempView("going")
    acting = any(one.acts for one in there(sync.assembled).summary.decisions)
    slots = {"body": BODY, "last_row": never_failing(LAST_ROW) if acting else "CAST(NULL AS BIGINT)"}
    return result_of(sync.spark, statement("rules/places", in_order=str(sync.in_order).lower(), **slots))


def _outputs(
    sync: Sync, records: DataFrame, truncated: tuple[Truncated, ...]
) -> tuple[DataFrame | None, str, dict[str, str]]:
    """The output rows, if there are outputs and transactions for them; what columns they have; the lookups' digests."""
    cursor, summary = sync.known.cursor, there(sync.assembled).summary
    if not summary.completed and cursor.columns and cursor.with_rules_of(sync.config):
        return None, cursor.columns, cursor.lookups
    placed = None
    if sync.done.preset:
        placed = _places(sync)
        if there(sync.assembled).summary.completed <= _FEW_TRANSACTIONS:
            placed = beside(placed, one_task=sync.one_task)
    lookups = bind_lookups(sync.spark, sync.config)  # behind our own views, whose names they may have
    outputs, columns = transform(
        sync.spark,
        records,
        sync.config,
        cursor.offsets,
        sync.failures,
        placed,
        truncated,
        keeper=sync.keeper,
        some_left_out=summary.left_out or any(one.action == "redrive" and one.acts for one in summary.decisions),
        spread=not sync.small,
        one_task=sync.one_task,
        documents=sync.documents,
    )
    check_types(sync.spark, sync.config, sync.staging, cursor.columns, columns)
    return outputs, columns, lookups


def _bind_decided(sync: Sync) -> None:
    """Makes the view `decided` of the operators' decisions that act."""
    decisions = [
        (one.settles, one.seqno, one.txn, one.action, one.who, one.why, one.revisits)
        for one in there(sync.assembled).summary.decisions
        if one.acts
    ]
    columns = "settles bigint, seqno bigint, txn string, action string, who string, why string, revisits string"
    local(sync.spark, decisions, columns).hint("broadcast").createOrReplaceTempView("decided")


def _bookkeeping(sync: Sync) -> DataFrame:
    spark, summary = sync.spark, there(sync.assembled).summary
    there(sync.settling).createOrReplaceTempView("settling")
    failures = [(one.seqno, one.reason, one.rule) for one in sync.failures]
    set_aside = local(spark, failures, "seqno bigint, reason string, rule string").hint("broadcast")
    set_aside.createOrReplaceTempView("set_aside")
    _bind_decided(sync)
    refused = [(one.seqno, one.refused) for one in summary.decisions if one.refused]
    if refused:
        local(spark, refused, "seqno bigint, reason string").hint("broadcast").createOrReplaceTempView("refused")
    late = literal("its transaction was settled already")
    needed = {
        "whole": summary.completed > 0,
        "in_flight": summary.flying > 0,  # as the first of what is a duplicate there is, too
        "single": summary.single > 0,
        "dropped": any(one.action == "drop" for one in summary.decisions),
        "ignored": summary.ignored > 0,
    }
    slots = {
        "state": sync.done.state_now if sync.stateful else "named_struct('none', CAST(NULL AS STRING))",
        "expired": f"timestamp_micros({sync.cutoff})",
        "known": str(0 if sync.changed else sync.known.cursor.head),
        "json_options": options(JSON_OPTIONS),
        "refused": "LEFT JOIN refused r ON single.seqno = r.seqno" if refused else "",
        "why_refused": "r.reason" if refused else "NULL",
        "why_late": f"CASE WHEN p3 IS NOT NULL THEN {literal(LATE_END)} ELSE {late} END" if sync.done.preset else late,
    }
    parts = [part for part, there_are in needed.items() if there_are] or ["whole"]
    rows = [result_of(spark, statement(f"bookkeeping/{part}", **slots)) for part in parts]
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), rows)
