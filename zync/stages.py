"""The stages of a sync, in order: what is known of it grows from one to the next."""

import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from zync.errors import UsageError
from zync.etl.failures import find_failures
from zync.etl.rules import JSON_OPTIONS, VIEW_COLUMNS, RaisedError, bind_lookups, check_plans
from zync.etl.transform import transform
from zync.frames import beside, local, result_of, select
from zync.pace import SMALL, pace
from zync.spark_errors import is_data_error, spark_errors
from zync.sql import options, statement
from zync.staging.commit import add_rows, commit, discard, read_back, write, write_here
from zync.staging.cursor import conclude
from zync.staging.table import STAGING_SCHEMA
from zync.transactions.debezium.completion import LAST_ROW
from zync.transactions.debezium.envelope import BODY
from zync.transactions.gather import read_with, recent
from zync.transactions.known import records_in
from zync.transactions.order import held, places
from zync.under_way import Sync, there

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FEW_TRANSACTIONS = 500_000
"""So many that two numbers for each fit into every task's memory: then outputs need not be sorted to find theirs."""


def read_new(sync: Sync) -> Sync:
    """The records after head, decoded with those that are in flight of transactions that began a short while ago.

    Those may well be whole now, and then their records are needed: to read them by themselves takes longer than to have
    their state. Where ids or `done` changed, all that is in flight is read again.
    """
    head, in_flight = sync.known.cursor.head, sync.known.in_flight
    again = pa.array([True] * in_flight.num_rows, pa.bool_()) if sync.changed else recent(in_flight, head)
    reread, others = in_flight.filter(again), in_flight.filter(pc.invert(again))
    sync = replace(sync, known=replace(sync.known, in_flight=others), reread=reread, earlier=records_in(reread))
    pace(sync.spark, sync.config.spark, sync.records)
    rows = read_with(sync.spark, sync.raw, reread, head, sync.head)
    return replace(sync, identified=sync.decoder.decode(rows))


def recall(sync: Sync) -> Sync:
    """What staging knows of these records' transactions: when they were settled, and which of them are in flight."""
    settled, in_flight, identified = sync.known.settled, sync.known.in_flight, there(sync.identified)
    if sync.in_order:
        whole = held(in_flight)
        waiting, in_flight = in_flight.filter(whole), in_flight.filter(pc.invert(whole))
        settled = pa.concat_tables([settled, pa.table({"txn": waiting["txn"], "seqno": places(waiting)})])
    if sync.small and (settled.num_rows or in_flight.num_rows):
        identified = sync.keeper.keep(identified)
        ids = identified.where("NOT alone").select("txn").toArrow()["txn"]
        settled = settled.filter(pc.is_in(settled["txn"], ids))
        in_flight = in_flight.filter(pc.is_in(in_flight["txn"], ids))
    newest = settled.group_by("txn").aggregate([("seqno", "max")]).rename_columns({"seqno_max": "settled_at"})
    settled_rows = local(sync.spark, newest.select(["txn", "settled_at"]), "txn string, settled_at bigint")
    if newest.num_rows <= SMALL:
        settled_rows = beside(settled_rows, one_task=sync.one_task)
    return replace(sync, identified=identified, met=in_flight, settled=settled_rows)


def transform_and_write(sync: Sync) -> Sync:
    """The rules' rows and the bookkeeping, as files; transactions that a rule fails on are found, and set aside."""
    records = there(sync.going).where("fault IS NULL AND NOT carried")
    if discarded := there(sync.assembled).summary.discarded:
        gone = local(sync.spark, [(seqno,) for seqno in discarded], "completes_at bigint")
        records = records.join(gone.hint("broadcast"), "completes_at", "left_anti")
    structs = [f"as_{number}" for number, one in enumerate(sync.config.topics.values()) if one.schema]
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


def _write(sync: Sync, records: "DataFrame", folder: str) -> tuple[str, dict[str, str]]:
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


def _outputs(sync: Sync, records: "DataFrame") -> "tuple[DataFrame | None, str, dict[str, str]]":
    """The output rows, if there are outputs and transactions for them; what columns they have; the lookups' digests."""
    cursor = sync.known.cursor
    if not there(sync.assembled).summary.completed and cursor.columns and cursor.with_rules_of(sync.config):
        return None, cursor.columns, cursor.lookups
    placed = None
    if sync.done.preset:
        there(sync.going).createOrReplaceTempView("going")
        acting = any(one.acts for one in there(sync.assembled).summary.decisions)
        slots = {"body": BODY, "last_row": LAST_ROW if acting else "CAST(NULL AS BIGINT)"}
        placed = result_of(sync.spark, statement("places", in_order=str(sync.in_order).lower(), **slots))
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
        spread=not sync.small,
        one_task=sync.one_task,
    )
    return outputs, columns, lookups


def _bookkeeping(sync: Sync) -> "DataFrame":
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
    rows = [result_of(spark, statement(part, **slots)) for part in parts]
    return reduce(lambda some, more: some.unionByName(more, allowMissingColumns=True), rows)


def conclude_and_commit(sync: Sync) -> Sync:
    """The cursor, from what is in flight after this sync; and then everything at once."""
    written, before = there(sync.written), sync.known
    if not sync.changed:  # else all that is in flight is written anew
        before = replace(before, in_flight=pa.concat_tables([there(sync.reread), before.in_flight]))
    nonce = uuid.uuid4().hex
    concluded = conclude(
        before,
        written.rows,
        number=sync.number,
        head=sync.head,
        cutoff=sync.cutoff,
        full=sync.changed or before.cursor.sync == 0,
        remember=sync.config.transactions.remember,
        cursor={
            "offsets": {**before.cursor.offsets, **written.offsets},
            "raw": {"id": str(sync.raw.metadata().id), "version": sync.raw.version()},
            "nonce": nonce,
            "state": sync.columns,
            "digests": {**sync.config.digests(), **sync.lookups},
        },
    )
    rows = pa.concat_tables([concluded.rows, _trimmed(sync)])
    add_rows(sync.staging, written.folder, rows)
    commit(sync.staging, written.folder, sync.number, nonce, rows=written.count + rows.num_rows)
    return replace(sync, after=concluded.known)


def _trimmed(sync: Sync) -> pa.Table:
    """A row that says which records there were no more when this staging was made; none where all were there."""
    ranges = [{"first": first, "last": last} for first, last in sync.trimmed]
    count = sum(last - first + 1 for first, last in sync.trimmed)
    row = {"kind": "trimmed", "sync": sync.number, "records": ranges, "count": count}
    return pa.Table.from_pylist([{**row, "seqno": sync.trimmed[-1][1]}] if ranges else [], STAGING_SCHEMA)
