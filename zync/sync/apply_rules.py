"""Stage apply_rules: runs the rules, and writes output and bookkeeping rows as files."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame

from zync.debezium.completion import LAST_ROW, LATE_END
from zync.debezium.envelope import BODY
from zync.debezium.unavailable import CLEAN, LEFT_OUT, has_envelopes
from zync.errors import UsageError, ZyncError
from zync.rules.failures import find_failures
from zync.rules.json_text import JSON_OPTIONS
from zync.rules.run import RaisedError, bind_lookups, check_plans
from zync.rules.transform import transform
from zync.rules.truncations import Truncated, find_truncated
from zync.rules.type_changes import check_types
from zync.rules.views import VIEW_COLUMNS
from zync.spark.causes import is_environment_error
from zync.spark.errors import message_of, spark_errors
from zync.spark.expressions import never_failing
from zync.spark.frames import from_rows, result_of, select, small_side
from zync.spark.functions import constant
from zync.spark.sizing import BROADCAST_TRANSACTIONS, tune
from zync.sql import literal, options, statement
from zync.staging.commit import Written, discard, read_back, write, write_here
from zync.sync.context import Sync
from zync.sync.judge import Judged
from zync.transactions.quarantine import Failure, check_limit
from zync.transactions.summary import Summary


@dataclass(frozen=True)
class _Outputs:
    """The output rows of a sync.

    Attributes:
        rows: The rows, or None without outputs or transactions.
        columns: The columns of all outputs as JSON (zync/rules/schema.py).
        lookup_digests: The digest of each lookup table that the rules read.
    """

    rows: DataFrame | None
    columns: str
    lookup_digests: dict[str, str]


@dataclass(frozen=True)
class Applied:
    """A sync after stage apply_rules: all its files are written, and none is committed.

    Attributes:
        sync: The running sync.
        summary: As of `Judged`.
        failures: The transactions that go to quarantine, those included that a rule fails on.
        written: The files.
        output_columns: The columns of all outputs as JSON (zync/rules/schema.py).
        lookup_digests: The digest of each lookup table that the rules read.
    """

    sync: Sync
    summary: Summary
    failures: tuple[Failure, ...]
    written: Written
    output_columns: str
    lookup_digests: dict[str, str]


def apply_rules(judged: Judged) -> Applied:
    """Runs the rules and writes their rows and the bookkeeping as files.

    If a rule fails, the stage finds the transactions that it fails on, quarantines them, and runs the rules again.

    Raises:
        UsageError: A rule fails whatever the records are, or returns a seqno of no outgoing transaction.
        DataError: More transactions would go to quarantine than the config allows.
        ZyncError: Something around the rules fails, whatever the records are.
    """
    sync, summary, failures = judged.sync, judged.summary, judged.failures
    records = judged.outgoing_records.where("record_error IS NULL AND NOT from_state")
    if discarded := summary.discarded:
        discarded_rows = from_rows(sync.spark, [(seqno,) for seqno in discarded], "completes_at bigint")
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
    if judged.has_truncations:
        _bind_decided(judged)
        truncations, unknown = find_truncated(sync.spark, records, sync.config, _positions(judged))
        truncated, failed_seqnos = tuple(truncations), {failure.seqno for failure in failures}
        failures = (*failures, *(failure for failure in unknown if failure.seqno not in failed_seqnos))
        check_limit(sync.quarantine_limit(summary), failures, summary.bad_records)
    while True:
        folder = f"sync-{sync.number:08d}-{uuid.uuid4().hex[:8]}"
        try:
            outputs = _write(judged, failures, records, truncated, folder)
        except Exception as error:
            discard(sync.staging, folder)
            if not isinstance(error, (*spark_errors(), RaisedError)):
                raise
            failures = _failures(judged, failures, records, error)
            continue
        written = read_back(sync.staging, folder)
        if written.foreign_seqno is not None:
            discard(sync.staging, folder)
            msg = (
                f"a rule makes a row of seqno {written.foreign_seqno}, and no such transaction goes out now: let it "
                "select the seqno of the records that the row is made of. Nothing was committed"
            )
            raise UsageError(msg)
        return Applied(sync, summary, failures, written, outputs.columns, outputs.lookup_digests)


def _failures(judged: Judged, known: tuple[Failure, ...], records: DataFrame, error: Exception) -> tuple[Failure, ...]:
    """Finds the transactions that the rules fail on, after they failed on `records` with `error`.

    Args:
        judged: The sync after stage judge.
        known: The transactions that go to quarantine already.
        records: The records that the rules ran over.
        error: What Spark or a Python rule raised.

    Returns:
        All transactions that go to quarantine, `known` included.

    Raises:
        ZyncError: The environment of the rules is at fault.
        UsageError: A rule fails whatever the records are.
        DataError: More would go to quarantine than the config allows.
    """
    sync = judged.sync
    try:
        if is_environment_error(error):
            raise error
        if not isinstance(error, RaisedError):
            check_plans(sync.spark, sync.config)
        limit = sync.quarantine_limit(judged.summary)
        failures = find_failures(
            sync.spark, records, sync.config, known, judged.summary.bad_records, limit, sync.row_cache
        )
    except spark_errors() as environment_error:
        msg = (
            f"the rules could not run, and no record is at fault: {message_of(environment_error).rstrip('.')}. "
            "Nothing was committed, and nothing set aside: mend that, and sync again"
        )
        raise ZyncError(msg) from environment_error
    if len(failures) == len(known):
        raise error
    tune(sync.spark, sync.config.spark, judged.sizing)
    return failures


def _write(
    judged: Judged,
    failures: tuple[Failure, ...],
    records: DataFrame,
    truncated: tuple[Truncated, ...],
    folder: str,
) -> _Outputs:
    """Writes all rows of the sync but those that `commit` adds, into a folder of staging."""
    sync, bookkeeping = judged.sync, _bookkeeping(judged, failures)
    if judged.sizing.is_small:  # all rows go into a single file
        outputs = _outputs(judged, failures, records, truncated)
        if outputs.rows is None:
            write_here(bookkeeping, sync.staging, folder, sync.number)
        else:
            rows = bookkeeping.unionByName(outputs.rows, allowMissingColumns=True)
            write(rows.coalesce(1), sync.staging, folder, sync.number)
        return outputs
    with ThreadPoolExecutor(1) as executor:  # Spark writes the bookkeeping while it plans the rules
        writing = executor.submit(write, bookkeeping, sync.staging, f"{folder}/bookkeeping", sync.number)
        outputs = _outputs(judged, failures, records, truncated)
        if outputs.rows is not None:
            write(outputs.rows, sync.staging, f"{folder}/output", sync.number)
        writing.result()
    return outputs


def _positions(judged: Judged) -> DataFrame:
    """Returns each transaction's position in the source's order and its turn (sql/apply_rules/positions.sql)."""
    sync = judged.sync
    judged.outgoing_records.createOrReplaceTempView("outgoing")
    has_acting = any(decision.acts for decision in judged.summary.decisions)
    slots = {"body": BODY, "last_row": never_failing(LAST_ROW) if has_acting else "CAST(NULL AS BIGINT)"}
    return result_of(
        sync.spark, statement("apply_rules/positions", in_order=str(sync.in_commit_order).lower(), **slots)
    )


def _outputs(
    judged: Judged, failures: tuple[Failure, ...], records: DataFrame, truncated: tuple[Truncated, ...]
) -> _Outputs:
    """Runs the rules over the records of outgoing transactions."""
    sync, summary, sizing = judged.sync, judged.summary, judged.sizing
    cursor = sync.bookkeeping.cursor
    if not summary.completed and cursor.columns and cursor.with_rules_of(sync.config):
        return _Outputs(None, cursor.columns, cursor.lookups)
    positions = None
    if sync.done.preset:
        positions = _positions(judged)
        if summary.completed <= BROADCAST_TRANSACTIONS:  # joined by a broadcast, output rows need not be sorted
            positions = small_side(positions, single_task=sizing.is_single_task)
    lookup_digests = bind_lookups(sync.spark, sync.config)  # after zync's own views, which may have the same names
    rows, columns = transform(
        sync.spark,
        records,
        sync.config,
        cursor.offsets,
        failures,
        positions,
        truncated,
        row_cache=sync.row_cache,
        some_left_out=summary.left_out
        or any(decision.action == "redrive" and decision.acts for decision in summary.decisions),
        sizing=sizing,
        documents=judged.has_documents,
    )
    check_types(sync.spark, sync.config, sync.staging, cursor.columns, columns)
    return _Outputs(rows, columns, lookup_digests)


def _bind_decided(judged: Judged) -> None:
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
        for decision in judged.summary.decisions
        if decision.acts
    ]
    columns = "settles bigint, seqno bigint, txn string, action string, who string, why string, revisits string"
    from_rows(judged.sync.spark, decisions, columns).hint("broadcast").createOrReplaceTempView("decided")


def _bookkeeping(judged: Judged, failures: tuple[Failure, ...]) -> DataFrame:
    """Returns staging's bookkeeping rows of this sync, by those statements in sql/apply_rules that have any."""
    sync, spark, summary = judged.sync, judged.sync.spark, judged.summary
    judged.records.createOrReplaceTempView("judged")
    failure_rows = [(failure.seqno, failure.reason, failure.rule) for failure in failures]
    set_aside = from_rows(spark, failure_rows, "seqno bigint, reason string, rule string").hint("broadcast")
    set_aside.createOrReplaceTempView("set_aside")
    _bind_decided(judged)
    refused = [(decision.seqno, decision.refused) for decision in summary.decisions if decision.refused]
    if refused:
        from_rows(spark, refused, "seqno bigint, reason string").hint("broadcast").createOrReplaceTempView("refused")
    late = literal("its transaction was settled already")
    has_rows = {
        "whole": summary.completed > 0,
        "in_flight": summary.in_flight > 0,  # covers its duplicates: the record that they repeat is in flight, too
        "single": summary.single > 0,
        "dropped": any(decision.action == "drop" for decision in summary.decisions),
        "ignored": summary.ignored > 0,
    }
    slots = {
        "state": sync.done.state_now if sync.keeps_state else "named_struct('none', CAST(NULL AS STRING))",
        "expired": f"timestamp_micros({constant(sync.expiry_cutoff(summary))})",
        "known": constant(0 if sync.rejudges_all else sync.bookkeeping.cursor.head),
        "json_options": options(JSON_OPTIONS),
        "refused": "LEFT JOIN refused r ON single.seqno = r.seqno" if refused else "",
        "why_refused": "r.reason" if refused else "NULL",
        "why_late": f"CASE WHEN p3 IS NOT NULL THEN {literal(LATE_END)} ELSE {late} END" if sync.done.preset else late,
    }
    names = [statement_name for statement_name, is_needed in has_rows.items() if is_needed] or ["whole"]
    rows = [result_of(spark, statement(f"apply_rules/{statement_name}", **slots)) for statement_name in names]
    return reduce(lambda union, more: union.unionByName(more, allowMissingColumns=True), rows)
