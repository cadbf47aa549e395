"""Stage transform_and_write: runs the rules, writes output and bookkeeping rows as files."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame

from zync.debezium.completion import LAST_ROW
from zync.debezium.envelope import BODY
from zync.debezium.unavailable import CLEAN, LEFT_OUT, has_envelopes
from zync.errors import UsageError
from zync.rules.bisect import find_failures
from zync.rules.json_text import JSON_OPTIONS
from zync.rules.run import RaisedError, bind_lookups, check_plans
from zync.rules.transform import transform
from zync.rules.views import VIEW_COLUMNS
from zync.spark.errors import is_data_error, spark_errors
from zync.spark.frames import beside, local, result_of, select
from zync.spark.tuning import pace
from zync.sql import options, statement
from zync.staging.commit import discard, read_back, write, write_here
from zync.sync.context import Sync, there

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
    while True:
        folder = f"sync-{sync.number:08d}-{uuid.uuid4().hex[:8]}"
        try:
            columns, lookups = _write(sync, records, folder)
        except Exception as error:
            discard(sync.staging, folder)
            if not (is_data_error(error) or isinstance(error, RaisedError)):
                if isinstance(error, spark_errors()):
                    check_plans(sync.spark, sync.config)
                raise
            faulty = there(sync.assembled).summary.faulty
            found = find_failures(sync.spark, records, sync.config, sync.failures, faulty, sync.limit, sync.keeper)
            if len(found) == len(sync.failures):
                raise
            pace(sync.spark, sync.config.spark, sync.records)
            sync = replace(sync, failures=found)
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


def _write(sync: Sync, records: DataFrame, folder: str) -> tuple[str, dict[str, str]]:
    """Writes all rows but those that `conclude_and_commit` adds. What columns outputs have; the lookups' digests."""
    bookkeeping = _bookkeeping(sync)
    if sync.small:  # one file of all
        outputs, columns, lookups = _outputs(sync, records)
        if outputs is None:
            write_here(bookkeeping, sync.staging, folder, sync.number)
        else:
            rows = bookkeeping.unionByName(outputs, allowMissingColumns=True)
            write(rows.coalesce(1), sync.staging, folder, sync.number)
        return columns, lookups
    with ThreadPoolExecutor(1) as aside:  # Spark has something to do while it plans the rules
        writing = aside.submit(write, bookkeeping, sync.staging, f"{folder}/bookkeeping", sync.number)
        outputs, columns, lookups = _outputs(sync, records)
        if outputs is not None:
            write(outputs, sync.staging, f"{folder}/output", sync.number)
        writing.result()
    return columns, lookups


def _outputs(sync: Sync, records: DataFrame) -> tuple[DataFrame | None, str, dict[str, str]]:
    """The output rows, if there are outputs and transactions for them; what columns they have; the lookups' digests."""
    cursor, summary = sync.known.cursor, there(sync.assembled).summary
    if not summary.completed and cursor.columns and cursor.with_rules_of(sync.config):
        return None, cursor.columns, cursor.lookups
    placed = None
    if sync.done.preset:
        there(sync.going).createOrReplaceTempView("going")
        acting = any(one.acts for one in there(sync.assembled).summary.decisions)
        slots = {"body": BODY, "last_row": LAST_ROW if acting else "CAST(NULL AS BIGINT)"}
        placed = result_of(sync.spark, statement("rules/places", in_order=str(sync.in_order).lower(), **slots))
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
        keeper=sync.keeper,
        some_left_out=summary.left_out or any(one.action == "redrive" and one.acts for one in summary.decisions),
        spread=not sync.small,
        one_task=sync.one_task,
    )
    return outputs, columns, lookups


def _bookkeeping(sync: Sync) -> DataFrame:
    spark, summary = sync.spark, there(sync.assembled).summary
    there(sync.settling).createOrReplaceTempView("settling")
    failures = [(one.seqno, one.reason, one.rule) for one in sync.failures]
    set_aside = local(spark, failures, "seqno bigint, reason string, rule string").hint("broadcast")
    set_aside.createOrReplaceTempView("set_aside")
    decisions = [
        (one.settles, one.seqno, one.txn, one.action, one.who, one.why, one.revisits)
        for one in summary.decisions
        if one.acts
    ]
    columns = "settles bigint, seqno bigint, txn string, action string, who string, why string, revisits string"
    decided = local(spark, decisions, columns).hint("broadcast")
    decided.createOrReplaceTempView("decided")
    refused = [(one.seqno, one.refused) for one in summary.decisions if one.refused]
    if refused:
        local(spark, refused, "seqno bigint, reason string").hint("broadcast").createOrReplaceTempView("refused")
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
    }
    parts = [part for part, there_are in needed.items() if there_are] or ["whole"]
    rows = [result_of(spark, statement(f"bookkeeping/{part}", **slots)) for part in parts]
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), rows)
