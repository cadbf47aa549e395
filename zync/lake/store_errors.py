"""Says in a line what an error of an object store means and what to do."""

from zync.lake import storage
from zync.lake.cloud_errors import AZURE, GS
from zync.lake.s3_errors import S3

_CLOUDS = {"gs": GS, "azure": AZURE}


def texts(error: BaseException) -> str:
    """Returns the texts of an error and of its causes."""
    lines = [str(error)]
    while (cause := error.__cause__ or error.__context__) is not None and len(lines) < 20:  # noqa: PLR2004 - any bound
        lines.append(str(cause))
        error = cause
    return "\n".join(lines)


def meaning(text: str, store: str = "") -> str | None:
    """Returns what an error's text means, as a line without a full stop; None if it is no error of a store.

    Args:
        text: The error's text.
        store: The object store, as `storage.store` names it; by default the one that this process opened last.
    """
    return _CLOUDS.get(store or storage.opened_store(), S3).meaning(text)


def outage(text: str, store: str = "") -> str | None:
    """Returns what an error's text says of a store that is away or overloaded; None for any other error.

    Waiting mends such an error, and no other error of a store. The arguments are those of `meaning`.
    """
    errors = _CLOUDS.get(store or storage.opened_store(), S3)
    return str(errors.meaning(text)).partition(": run the command again")[0] if errors.is_outage(text) else None
