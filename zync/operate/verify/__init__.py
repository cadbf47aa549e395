"""`zync verify`: proves of raw and staging, as they are, what zync promises; or says what is damaged, and where."""

from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileType

from zync.config.model import Config
from zync.lake.files import data_files, table_files
from zync.lake.table import first_line
from zync.operate.verify.claim import Claim
from zync.operate.verify.raw import against_kafka, of_raw
from zync.operate.verify.staging import made_of, of_staging
from zync.raw.table import existing_raw
from zync.staging.table import SYNC, existing_staging


def verify(raw: str, staging: str | None, config: Config, *, every_version: bool, kafka: bool) -> list[Claim]:
    """The claims about both tables (raw alone, if `staging` is None); those with violations do not hold."""
    table = existing_raw(raw)
    claims = [*of_raw(table)]
    if kafka:
        claims.append(against_kafka(table, config))
    if staging is not None:
        newest = existing_staging(staging)
        read: dict[str, Any] = {}
        kept = Claim("versions of staging before this one are as they must be")
        for old in _kept(newest, kept) if every_version else ():
            kept.count += 1
            if old.transaction_version(SYNC) is not None:
                claims += _named(f"version {old.version()}: ", of_staging(old, config, read))
        claims += [kept] if every_version else []
        claims += [*of_staging(newest, config, read), made_of(newest, table)]
    return claims


def _kept(newest: DeltaTable, claim: Claim) -> Iterator[DeltaTable]:
    """The versions before that one which can be read still: `zync maintain` takes log entries and files away.

    `claim` is broken where one has no log entry though an earlier one has, and says how many have not all their files.
    """
    readable, vacuumed = False, 0
    now = {file.path for file in data_files(newest, "seqno")}
    files, there = table_files(newest), dict[str, bool]()
    for version in range(newest.version()):
        try:
            old = DeltaTable(newest.table_uri, version=version)
        except DeltaError as error:
            if readable:
                claim.broken(f"version {version}: {first_line(error)}")
            continue
        readable = True
        gone = {file.path for file in data_files(old, "seqno")} - now
        asked = sorted(gone - there.keys())
        there |= {path: one.type == FileType.File for path, one in zip(asked, files.get_file_info(asked), strict=True)}
        if all(there[path] for path in gone):
            yield old
        else:
            vacuumed += 1
    if vacuumed:
        claim.text += f" (of {vacuumed:,} others files were taken away that are not needed now)"


def _named(prefix: str, claims: Iterator[Claim]) -> Iterator[Claim]:
    for claim in claims:
        if claim.violations:
            claim.text = prefix + claim.text
            yield claim


def describe(claims: list[Claim]) -> str:
    """What was proved, and what not, as lines for people."""
    lines = []
    for one in claims:
        lines.append(f"{'FAILED' if one.violations else 'ok    '} {one.text}: {one.count:,}")
        lines += [f"         {where}" for where in one.violations]
        if one.more:
            lines.append(f"         and {one.more:,} more")
    return "\n".join(lines)
