"""What the errors of an object store mean, and what to do about each: the parts that are the same for every store.

delta-rs, Arrow and Spark word the same error in three ways. `s3_errors.py` and `cloud_errors.py` have the words, and
how each client names the request that failed.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

AWAY = "the store{endpoint} does not answer{cause}: run the command again once it does, or correct the endpoint"
AWAY_OR_ANOTHER_ACCOUNT = AWAY + " or the account's name"
OVERLOADED = "the store fails or is overloaded, also after several attempts ({answer}): run the command again later"
REFUSED = "no permission to {operation}: grant {grant}"
_OUTAGES = (AWAY, AWAY_OR_ANOTHER_ACCOUNT, OVERLOADED)
"""What is said of a store that waiting mends."""
_ANSWER = re.compile(r"\b(50[0234]|429) ?([A-Z][A-Za-z ]+)?|SLOW_DOWN|SlowDown|ServerBusy|RESOURCE_EXHAUSTED")
_CAUSE = re.compile(
    r"(Connection refused|[Tt]imed out|Name or service not known|failed to lookup address|Connection reset|"
    r"Could not (connect|resolve host)|UnknownHostException|connection closed|specified timeout)"
)
_REGION = re.compile(r"located in '([\w-]+)'|to region \[([\w-]+)\]|expecting '([\w-]+)'|<Region>([\w-]+)</Region>")


@dataclass(frozen=True)
class Request:
    """The request that failed, as far as its error names it.

    Attributes:
        kind: `list`, `read`, `write` or `delete`.
        location: The object or prefix, with the bucket if that is known.
        bucket: The bucket or container, or words for it.
        server: The server's URL; empty if it is not known.
    """

    kind: str = "read"
    location: str = "what is in the store"
    bucket: str = "of the lake"
    server: str = ""


@dataclass(frozen=True)
class StoreErrors:
    """The errors of a kind of store.

    Attributes:
        sign: What an error of the store has somewhere: other errors may contain the words of `meanings`, too.
        meanings: What an error contains, and what is said of it. The first that fits counts.
        grants: The permission that a request of each kind needs.
        failed_request: Returns the request that an error's text names.
    """

    sign: re.Pattern[str]
    meanings: tuple[tuple[str, str], ...]
    grants: Mapping[str, str]
    failed_request: Callable[[str], Request]

    def is_outage(self, text: str) -> bool:
        """Returns whether an error's text says that the store is away or overloaded."""
        return self._sentence(text) in _OUTAGES

    def meaning(self, text: str) -> str | None:
        """Returns what an error's text means, as a line without a full stop; None if it is no error of the store."""
        sentence = self._sentence(text)
        if sentence is None:
            return None
        request = self.failed_request(text)
        region, answer, cause = _REGION.search(text), _ANSWER.search(text), _CAUSE.search(text)
        return sentence.format(
            bucket=request.bucket,
            region=f" ({next(filter(None, region.groups()))})" if region else "",
            operation=f"{request.kind} {request.location}",
            grant=self.grants[request.kind],
            answer=answer[0].strip() if answer else "no success",
            endpoint=f" at {request.server}" if request.server else "",
            cause=f" ({cause[0]})" if cause else "",
        )

    def _sentence(self, text: str) -> str | None:
        """Returns the sentence of `meanings` for an error's text; None if it is no error of the store."""
        if not self.sign.search(text):
            return None
        return next((sentence for words, sentence in self.meanings if re.search(words, text)), None)
