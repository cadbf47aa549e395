"""Stage apply_rules: runs the rules, and writes output and bookkeeping rows as files."""

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
from zync.sync.context import Sync, require
from zync.transactions.quarantine import Failure, check_limit

_FEW_TRANSACTIONS = 500_000
"""With up to this many transactions their positions and turns (two numbers each) fit into every task's memory.

They are then joined by a broadcast, and output rows need not be sorted for it.
"""


def apply_rules(sync: Sync) -> Sync:
    """Runs the rules and writes their rows and the bookkeeping as files.

    If a rule fails, the stage finds the transactions that it fails on, quarantines them, and runs the rules again.

    Raises:
        UsageError: A rule fails whatever the records are, or returns a seqno of no outgoing transaction.
        DataError: More transactions would go to quarantine than the config allows.
        ZyncError: Something around the rules fails, whatever the records are.
    """
    records = require(sync.outgoing_records).where("fault IS NULL AND NOT carried")
    if discarded := require(sync.assembled).summary.discarded:
        discarded_rows = local(sync.spark, [(seqno,) for seqno in discarded], "completes_at bigint")
        records = records.join(discarded_rows.hint("broadcast"), "completes_at", "left_anti")
    structs = [f"as_{number}" for number, topic in enumerate(sync.config.topics.values()) if topic.schema]
    structs += [LEFT_OUT, CLEAN] if has_envelopes(sync.config) else []
    records = select(
        records,
        "completes_at AS seqno",
        "seqno AS record_seqno",
        *(column for column in VIEW_COLUMNS if "seqno" not in column),
        *structs,
    )
    truncated: tuple[Truncated, ...] = ()
    if sync.has_truncations:
        _bind_decided(sync)
        truncations, unknown = find_truncated(sync.spark, records, sync.config, _positions(sync))
        truncated, failed_seqnos = tuple(truncations), {failure.seqno for failure in sync.failures}
        failures = (*sync.failures, *(failure for failure in unknown if failure.seqno not in failed_seqnos))
        check_limit(sync.quarantine_limit, failures, require(sync.assembled).summary.faulty)
        sync = replace(sync, failures=failures)
    while True:
        folder = f"sync-{sync.number:08d}-{uuid.uuid4().hex[:8]}"
        try:
            columns, lookup_digests = _write(sync, records, truncated, folder)
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
        return replace(sync, written=written, output_columns=columns, lookup_digests=lookup_digests)


def _failures(sync: Sync, records: DataFrame, error: Exception) -> tuple[Failure, ...]:
    """Finds the transactions that the rules fail on, after they failed on `records` with `error`.

    Returns:
        All transactions that go to quarantine, the ones that were known before included.

    Raises:
        ZyncError: The environment of the rules is at fault.
        UsageError: A rule fails whatever the records are.
        DataError: More would go to quarantine than the config allows.
    """
    try:
        if is_of_surroundings(error):
            raise error
        if not isinstance(error, RaisedError):
            check_plans(sync.spark, sync.config)
        bad_count = require(sync.assembled).summary.faulty
        failures = find_failures(
            sync.spark, records, sync.config, sync.failures, bad_count, sync.quarantine_limit, sync.keeper
        )
    except spark_errors() as environment_error:
        msg = (
            f"the rules could not run, and no record is at fault: {message_of(environment_error).rstrip('.')}. "
            "Nothing was committed, and nothing set aside: mend that, and sync again"
        )
        raise ZyncError(msg) from environment_error
    if len(failures) == len(sync.failures):
        raise error
    pace(sync.spark, sync.config.spark, sync.record_count)
    return failures


def _write(sync: Sync, records: DataFrame, truncated: tuple[Truncated, ...], folder: str) -> tuple[str, dict[str, str]]:
    """Writes all rows of the sync but those that `commit` adds.

    Returns:
        The columns of all outputs as JSON (zync/rules/schema.py), and the digests of the lookup tables.
    """
    bookkeeping = _bookkeeping(sync)
    if sync.is_small:  # all rows go into a single file
        outputs, columns, lookup_digests = _outputs(sync, records, truncated)
        if outputs is None:
            write_here(bookkeeping, sync.staging, folder, sync.number)
        else:
            rows = bookkeeping.unionByName(outputs, allowMissingColumns=True)
            write(rows.coalesce(1), sync.staging, folder, sync.number)
        return columns, lookup_digests
    with ThreadPoolExecutor(1) as executor:  # Spark writes the bookkeeping while it plans the rules
        writing = executor.submit(write, bookkeeping, sync.staging, f"{folder}/bookkeeping", sync.number)
        outputs, columns, lookup_digests = _outputs(sync, records, truncated)
        if outputs is not None:
            write(outputs, sync.staging, f"{folder}/output", sync.number)
        writing.result()
    return columns, lookup_digests


def _positions(sync: Sync) -> DataFrame:
    """Returns each transaction's position in the source's order and its turn (sql/apply_rules/places.sql)."""
    require(sync.outgoing_records).createOrReplaceTempView("going")
    has_acting = any(decision.acts for decision in require(sync.assembled).summary.decisions)
    slots = {"body": BODY, "last_row": never_failing(LAST_ROW) if has_acting else "CAST(NULL AS BIGINT)"}
    return result_of(sync.spark, statement("apply_rules/places", in_order=str(sync.in_commit_order).lower(), **slots))


def _outputs(
    sync: Sync, records: DataFrame, truncated: tuple[Truncated, ...]
) -> tuple[DataFrame | None, str, dict[str, str]]:
    """Runs the rules over the records of outgoing transactions.

    Returns:
        The output rows, or None without outputs or transactions; the columns of all outputs as JSON; and the digests
        of the lookup tables.
    """
    cursor, summary = sync.bookkeeping.cursor, require(sync.assembled).summary
    if not summary.completed and cursor.columns and cursor.with_rules_of(sync.config):
        return None, cursor.columns, cursor.lookups
    positions = None
    if sync.done.preset:
        positions = _positions(sync)
        if require(sync.assembled).summary.completed <= _FEW_TRANSACTIONS:
            positions = beside(positions, one_task=sync.uses_single_task)
    lookup_digests = bind_lookups(sync.spark, sync.config)  # after zync's own views, which may have the same names
    outputs, columns = transform(
        sync.spark,
        records,
        sync.config,
        cursor.offsets,
        sync.failures,
        positions,
        truncated,
        keeper=sync.keeper,
        some_left_out=summary.left_out
        or any(decision.action == "redrive" and decision.acts for decision in summary.decisions),
        spread=not sync.is_small,
        one_task=sync.uses_single_task,
        documents=sync.has_documents,
    )
    check_types(sync.spark, sync.config, sync.staging, cursor.columns, columns)
    return outputs, columns, lookup_digests


def _bind_decided(sync: Sync) -> None:
    """Creates the view `decided`, which has the operators' decisions that act."""
    decisions = [
        (
            decision.settles,
            decision.seqno,
            decision.txn,
            decision.action,
            decision.who,
            decision.why,
            decision.revisits,
        )
        for decision in require(sync.assembled).summary.decisions
        if decision.acts
    ]
    columns = "settles bigint, seqno bigint, txn string, action string, who string, why string, revisits string"
    local(sync.spark, decisions, columns).hint("broadcast").createOrReplaceTempView("decided")


def _bookkeeping(sync: Sync) -> DataFrame:
    """Returns staging's bookkeeping rows of this sync, by those statements in sql/apply_rules that have any."""
    spark, summary = sync.spark, require(sync.assembled).summary
    require(sync.judged_records).createOrReplaceTempView("settling")
    failures = [(failure.seqno, failure.reason, failure.rule) for failure in sync.failures]
    set_aside = local(spark, failures, "seqno bigint, reason string, rule string").hint("broadcast")
    set_aside.createOrReplaceTempView("set_aside")
    _bind_decided(sync)
    refused = [(decision.seqno, decision.refused) for decision in summary.decisions if decision.refused]
    if refused:
        local(spark, refused, "seqno bigint, reason string").hint("broadcast").createOrReplaceTempView("refused")
    late = literal("its transaction was settled already")
    has_rows = {
        "whole": summary.completed > 0,
        "in_flight": summary.flying > 0,  # covers its duplicates: the record that they repeat is in flight, too
        "single": summary.single > 0,
        "dropped": any(decision.action == "drop" for decision in summary.decisions),
        "ignored": summary.ignored > 0,
    }
    slots = {
        "state": sync.done.state_now if sync.keeps_state else "named_struct('none', CAST(NULL AS STRING))",
        "expired": f"timestamp_micros({sync.expiry_cutoff})",
        "known": str(0 if sync.rejudges_all else sync.bookkeeping.cursor.head),
        "json_options": options(JSON_OPTIONS),
        "refused": "LEFT JOIN refused r ON single.seqno = r.seqno" if refused else "",
        "why_refused": "r.reason" if refused else "NULL",
        "why_late": f"CASE WHEN p3 IS NOT NULL THEN {literal(LATE_END)} ELSE {late} END" if sync.done.preset else late,
    }
    names = [statement_name for statement_name, is_needed in has_rows.items() if is_needed] or ["whole"]
    rows = [result_of(spark, statement(f"apply_rules/{statement_name}", **slots)) for statement_name in names]
    return reduce(lambda union, more: union.unionByName(more, allowMissingColumns=True), rows)
