"""A proxy that refuses what a test says, as S3 words it, and hands everything else to another server."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.store.proxy import Answer, Proxy, Request, Rule, running_proxy

ERROR = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    "<Error><Code>{code}</Code><Message>{message}</Message><RequestId>4442587FB7D0A2F9</RequestId></Error>"
)


@dataclass(frozen=True)
class Refusal:
    """An answer of S3's to requests of some methods: the status, S3's code, its words, and more headers."""

    status: int
    code: str
    message: str
    methods: tuple[str, ...] = ("GET", "HEAD", "PUT", "POST", "DELETE")
    only: Callable[[str], bool] = lambda _path: True
    headers: tuple[tuple[str, str], ...] = ()


class Gate:
    """What the proxy does with requests.

    Attributes:
        proxy: The proxy.
        refusal: The answer instead of the other server's; None: none is refused.
    """

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.refusal: Refusal | None = None
        proxy.rule = self._answer

    def ignore_conditions(self) -> None:
        """Drops `If-None-Match` and `If-Match` from now on, as old stores that speak S3 do."""
        self.proxy.dropped_headers = frozenset({"if-none-match", "if-match"})

    def reset(self) -> None:
        """Hands all on as it is, and forgets the requests."""
        self.refusal, self.proxy.dropped_headers = None, frozenset()
        self.proxy.requests.clear()

    @contextmanager
    def ruled_by(self, rule: Rule) -> Iterator[None]:
        """Has another rule decide about requests in this context."""
        self.proxy.rule = rule
        try:
            yield
        finally:
            self.proxy.rule = self._answer

    def _answer(self, request: Request, _: Callable[[], None]) -> Answer | None:
        refusal = self.refusal
        if not refusal or request.method not in refusal.methods or not refusal.only(request.path):
            return None
        text = ERROR.format(code=refusal.code, message=refusal.message).encode()
        return Answer(refusal.status, text, (("Content-Type", "application/xml"), *refusal.headers))


@contextmanager
def refusing_s3(upstream: str) -> Iterator[Gate]:
    """Runs the proxy before the S3 server at the URL `upstream`."""
    with running_proxy(upstream) as proxy:
        yield Gate(proxy)
