"""`zync verify`: checks that raw, staging and delivered tables hold what zync promises, and names places of damage."""

from collections.abc import Iterator
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from pyarrow.fs import FileType

from zync.config.model import Config
from zync.lake.delivered import FOLDER
from zync.lake.files import data_files, table_files
from zync.lake.paths import locate
from zync.lake.storage import delta_options
from zync.lake.table import first_line
from zync.operate.verify.claim import Claim
from zync.operate.verify.raw import kafka_claim, raw_claims
from zync.operate.verify.staging import same_raw_claim, staging_claims
from zync.operate.verify.tables import tables_claims
from zync.raw.table import existing_raw
from zync.staging.table import SYNC, existing_staging


def verify(  # noqa: PLR0913 - a public function: the caller chooses each
    raw: str, staging: str | None, config: Config, *, every_version: bool, kafka: bool, tables: str | None = None
) -> list[Claim]:
    """Checks all claims about raw, staging and the delivered tables. A claim with violations does not hold.

    Args:
        raw: the location of raw.
        staging: the location of staging; None: only raw is checked.
        config: the config of the pipeline.
        every_version: also check the earlier versions of staging that can still be read.
        kafka: also compare raw's positions with the brokers'.
        tables: the folder of the delivered tables; None: that of the config's lake.

    Example:
        >>> claims = zync.verify("lake/raw", "lake/staging", config, every_version=False, kafka=False)
        >>> [claim.text for claim in claims if claim.violations]
        []
    """
    table = existing_raw(raw)
    claims = [*raw_claims(table)]
    if kafka:
        claims.append(kafka_claim(table, config))
    if staging is not None:
        newest = existing_staging(staging)
        rows_by_path: dict[str, Any] = {}
        versions_claim = Claim("versions of staging before this one are as they must be")
        for version in _earlier_versions(newest, versions_claim) if every_version else ():
            versions_claim.count += 1
            if version.transaction_version(SYNC) is not None:
                prefix = f"version {version.version()}: "
                claims += _violated(prefix, staging_claims(version, config, rows_by_path))
        claims += [versions_claim] if every_version else []
        claims += [*staging_claims(newest, config, rows_by_path), same_raw_claim(newest, table)]
        claims += tables_claims(tables or locate(FOLDER, config.lake), staging)
    return claims


def _earlier_versions(newest: DeltaTable, claim: Claim) -> Iterator[DeltaTable]:
    """Yields the earlier versions of a table that can still be read. `zync maintain` deletes log entries and files.

    Args:
        newest: the table's newest version.
        claim: gets a violation for a missing log entry after an existing one; its text is extended by the number of
            versions that do not have all their files.
    """
    is_readable, vacuumed = False, 0
    newest_paths = {file.path for file in data_files(newest, "seqno")}
    files, path_exists = table_files(newest), dict[str, bool]()
    for version in range(newest.version()):
        try:
            earlier = DeltaTable(newest.table_uri, version, delta_options(newest.table_uri))
        except DeltaError as error:
            if is_readable:
                claim.add_violation(f"version {version}: {first_line(error)}")
            continue
        is_readable = True
        replaced = {file.path for file in data_files(earlier, "seqno")} - newest_paths
        unchecked = sorted(replaced - path_exists.keys())
        infos = files.get_file_info(unchecked)
        path_exists |= {path: info.type == FileType.File for path, info in zip(unchecked, infos, strict=True)}
        if all(path_exists[path] for path in replaced):
            yield earlier
        else:
            vacuumed += 1
    if vacuumed:
        claim.text += f" (of {vacuumed:,} others files were taken away that are not needed now)"


def _violated(prefix: str, claims: Iterator[Claim]) -> Iterator[Claim]:
    """Yields the claims that do not hold, with a prefix before their text."""
    for claim in claims:
        if claim.violations:
            claim.text = prefix + claim.text
            yield claim


def describe(claims: list[Claim]) -> str:
    """Returns the claims and their violations as lines for people."""
    lines = []
    for claim in claims:
        lines.append(f"{'FAILED' if claim.violations else 'ok    '} {claim.text}: {claim.count:,}")
        lines += [f"         {violation}" for violation in claim.violations]
        if claim.more:
            lines.append(f"         and {claim.more:,} more")
    return "\n".join(lines)
