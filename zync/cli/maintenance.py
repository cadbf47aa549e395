"""The commands on whole tables: replay, diff, verify and maintain."""

import sys
from typing import Annotated

import typer

from zync.cli.common import Common, common_options
from zync.cli.completion import maintained, tables
from zync.cli.options import Retain
from zync.lake.paths import locate


@common_options()
def replay(
    common: Common,
    table: Annotated[str, typer.Argument(help="raw.", autocompletion=tables)],
    into: Annotated[str, typer.Option(help="The staging to make.", metavar="TABLE", autocompletion=tables)],
    to_seqno: Annotated[int | None, typer.Option(min=1, help="Up to that seqno.", metavar="N")] = None,
    beside: Annotated[
        str, typer.Option(help="The staging whose rules to compare.", metavar="TABLE", autocompletion=tables)
    ] = "staging",
    master: Annotated[str | None, typer.Option(help="Spark's master.")] = None,
) -> None:
    """Make a staging anew from raw, decisions included. The same rules give the same rows and offsets.

    \b
    zync replay raw --into staging2
    zync replay raw --into staging2 --config next.yaml && zync diff staging staging2
    """
    from zync.operate.replay import replay as make
    from zync.spark.session import session
    from zync.sync.outcome import describe

    settings, out = common.read_config(needed=True), common.out
    raw, target, other = (locate(name, settings.lake) for name in (table, into, beside))
    spark = session(master, settings.spark, lake=settings.lake)
    result = make(spark, settings, raw, target, to_seqno, other, lambda outcome: out.progress(describe(outcome)))
    out.replayed(result, into, beside)


@common_options()
def diff(
    common: Common,
    one: Annotated[str, typer.Argument(help="A staging.", autocompletion=tables)],
    other: Annotated[str, typer.Argument(help="Another.", autocompletion=tables)],
    limit: Annotated[int, typer.Option(min=0, help="Examples shown of each topic.")] = 20,
) -> None:
    """Show how output rows of two stagings differ, by topic and key. Exit 1 when they do.

    \b
    zync diff staging staging2
    """
    from zync.operate.diff import diff as compare
    from zync.spark.session import session

    settings = common.read_config()
    spark = session(None, settings.spark, brief=True, lake=settings.lake)
    differences = compare(spark, locate(one, settings.lake), locate(other, settings.lake), limit)
    common.out.differences(differences)
    sys.exit(1 if differences else 0)


@common_options()
def verify(
    common: Common,
    raw: Annotated[str, typer.Argument(help="The raw table.", autocompletion=tables)] = "raw",
    staging: Annotated[
        str | None,
        typer.Argument(help="The staging table; where RAW is raw, and it is there: staging.", autocompletion=tables),
    ] = None,
    every_version: Annotated[bool, typer.Option("--every-version", help="Staging as it ever was, too.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="Raw's positions against the broker, too.")] = False,
) -> None:
    """Prove that raw, staging and delivered tables are as they must be. Exit 1 with each place where they are not.

    The delivered tables are looked at with STAGING, at the versions in the newest snapshot.

    \b
    zync verify
    zync verify raw staging --every-version --kafka
    """
    from zync.lake.table import open_table
    from zync.operate.verify import verify as prove

    settings = common.read_config()
    staging_location = locate(staging or "staging", settings.lake)
    with_staging = staging is not None or (raw == "raw" and open_table(staging_location) is not None)
    claims = prove(
        locate(raw, settings.lake),
        staging_location if with_staging else None,
        settings,
        every_version=every_version,
        kafka=kafka,
    )
    common.out.verified(claims)
    sys.exit(1 if any(claim.violations for claim in claims) else 0)


@common_options()
def maintain(
    common: Common,
    table: Annotated[
        str, typer.Argument(help="raw, staging, or tables: all delivered ones.", autocompletion=maintained)
    ],
    compact: Annotated[bool, typer.Option("--compact", help="Small files into large ones.")] = False,
    vacuum: Annotated[bool, typer.Option("--vacuum", help="Delete files that are no part of it any more.")] = False,
    retain: Retain = None,
    staging: Annotated[
        list[str] | None,
        typer.Option(metavar="TABLE", help="Made of raw, and not in its folder; repeatable.", autocompletion=tables),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
) -> None:
    """Keep a table tidy while others write and read it. Compacts, vacuums (without either: both), shortens its log.

    Vacuum keeps what the table was made of within --retain (7d), and a day at least, for those who still read it.
    If --retain is given it takes records of raw away, too: older ones, of transactions that every staging has settled.

    Delivered tables are vacuumed, and their logs shortened; deliveries compact them.

    \b
    zync maintain raw --dry-run
    zync maintain raw --retain 30d
    zync maintain staging --compact --vacuum
    zync maintain tables
    """
    from zync.errors import UsageError
    from zync.operate.maintain import RETAIN, Trimming
    from zync.operate.maintain import maintain as tidy

    settings, out = common.read_config(), common.out
    both = not (compact or vacuum)
    others = tuple(locate(name, settings.lake) for name in staging or ())
    trimming = None
    if retain is not None and not (vacuum or both):
        msg = "--retain says for how long vacuum keeps things: add --vacuum, or leave --compact out"
        raise UsageError(msg)
    if staging and retain is None:
        msg = "--staging says who needs raw's records while others are taken away: add --retain"
        raise UsageError(msg)
    if retain is not None:
        trimming = Trimming(retain, others, settings.transactions.remember)
    result = tidy(
        locate(table, settings.lake),
        compact=compact or both,
        vacuum=vacuum or both,
        retain=RETAIN if retain is None else retain,
        trimming=trimming,
        dry_run=dry_run,
        on_compacted=out.compacted,
    )
    out.maintained(result)
