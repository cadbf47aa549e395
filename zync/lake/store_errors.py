"""Says in a line what an error of S3 means and what to do. delta-rs, Arrow and Spark word it in three ways."""

import os
import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from urllib.parse import parse_qs, unquote, urlparse

from zync.lake import cloud_errors, storage
from zync.lake.paths import is_local

_STORE = re.compile(
    r"Generic S3 error|Error performing [A-Z]+ |AWS Error |Service: S3|software\.amazon\.awssdk|hadoop\.fs\.s3a|"
    r"error occurred while loading credentials|no credentials found in chain"
)
"""What an error of a store has somewhere: other errors may contain the words of `_MEANINGS`, too."""
_OVERLOADED = "the store fails or is overloaded, also after several attempts ({answer}): run the command again later"
_AWAY = "the store{endpoint} does not answer{cause}: run the command again once it does, or correct the endpoint"
_MEANINGS = (
    (
        "ExpiredToken|ExpiredTokenException|TokenRefreshRequired|token (included in the request )?(has|is) expired",
        "the store's credentials have expired: renew them, and run the command again",
    ),
    (
        r"HTTP status 400\) during HeadObject",  # the answer has no body that would name the reason
        "the store refuses the credentials, which may have expired: renew them, and run the command again",
    ),
    (
        "InvalidAccessKeyId|INVALID_ACCESS_KEY_ID|Access Key Id you provided does not exist",
        "the store does not know the access key id: correct AWS_ACCESS_KEY_ID, the profile or storage.access_key_id",
    ),
    (
        "SignatureDoesNotMatch|SIGNATURE_DOES_NOT_MATCH|signature we calculated does not match",
        "the secret is not that of the access key id: correct AWS_SECRET_ACCESS_KEY, the profile or "
        "storage.secret_access_key",
    ),
    (
        "InvalidToken|token (included in the request|you provided|that is provided) is (invalid|malformed)",
        "the session token does not belong to the access key: correct AWS_SESSION_TOKEN or storage.session_token",
    ),
    (
        "RequestTimeTooSkewed|REQUEST_TIME_TOO_SKEWED",
        "the clock of this host differs too much from the store's: set it",
    ),
    (
        "NoSuchBucket|NO_SUCH_BUCKET|specified bucket does not exist",
        "the store has no bucket {bucket}: create it, or correct the lake's address",
    ),
    (
        "PermanentRedirect|AuthorizationHeaderMalformed|redirect without LOCATION|HTTP status 301|Status Code: 301",
        "the bucket {bucket} is in another region{region}: correct AWS_REGION or storage.region (and the endpoint, if "
        "one is set)",
    ),
    (
        "no credentials found in chain|loading credentials|Unable to load credentials|169\\.254\\.169\\.254|"
        "No AWS Credentials|NoAuthWithAWSException|NoAwsCredentialsException",
        "there are no credentials for the store: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or "
        "storage.access_key_id and storage.secret_access_key in the config",
    ),
    (
        "NotImplemented|501 Not Implemented|Status Code: 501",
        "the store does not know a request that zync needs, probably the conditional put (If-None-Match: *): take a "
        "store that has it",
    ),
    (
        "AccessDenied|ACCESS_DENIED|AllAccessDisabled|AccountProblem|403 Forbidden|Status Code: 403|HTTP status 403",
        "no permission to {operation}: {grant}",
    ),
    (
        "SlowDown|SLOW_DOWN|reduce your request rate|50[0234] (Internal|Bad Gateway|Service|Gateway)|"
        "(HTTP status|Status Code:) 50[0234]|SERVICE_UNAVAILABLE|INTERNAL_FAILURE",
        _OVERLOADED,
    ),
    (
        "error sending request|NETWORK_CONNECTION|Unable to execute HTTP request|curlCode|operation timed out|"
        "Connection reset|connection closed|execution did not complete before the specified timeout",
        _AWAY,
    ),
)
"""What an error contains, and what is said of it. The first that fits counts: a 403 may have a code of its own."""
_DELTA_REQUEST = re.compile(r"Error performing ([A-Z]+) (https?://\S+) in ")
_DELTA_DELETE = re.compile(r"DeleteObjects request failed for key ([^\s:]+)")
_ARROW_REQUEST = re.compile(r"key '([^']*)' in bucket '([^']*)'.*? during (\w+) operation")
_SPARK_REQUEST = re.compile(r"([\w#()/ -]+?) +on (s3a?://)?([^\s:]+):")
_SPARK_FILE = re.compile(r"(?:reading file|accessing) s3a?://([^\s,]+[^\s,.])")
_REGION = re.compile(r"located in '([\w-]+)'|to region \[([\w-]+)\]|expecting '([\w-]+)'|<Region>([\w-]+)</Region>")
_ANSWER = re.compile(r"\b(50[0234]) ?([A-Z][A-Za-z ]+)?|SLOW_DOWN|SlowDown")
_PANIC = re.compile(
    rb"\n?thread '[^\n]*panicked at [^\n]*object_store[^\n]*\n[^\n]*\n"
    rb"(stack backtrace:\n)?( +[^\n]*\n)*(note: [^\n]*\n)*"
)
_redirecting = threading.Lock()
_CAUSE = re.compile(
    r"(Connection refused|[Tt]imed out|Name or service not known|failed to lookup address|Connection reset|"
    r"Could not connect|UnknownHostException|connection closed|specified timeout)"
)
_OPERATIONS = (
    ("list", "list", "grant s3:ListBucket on the bucket"),
    ("delete|remove", "delete", "grant s3:DeleteObject on it"),
    ("put|post|upload|write|writing|copy", "write", "grant s3:PutObject on it"),
    (
        "",
        "read",
        "grant s3:GetObject on it, and s3:ListBucket on the bucket (without which S3 also hides what is gone)",
    ),
)
"""What requests of a kind do, and the permission that they need."""


@dataclass(frozen=True)
class _Request:
    """The request that failed, as far as its error names it.

    Attributes:
        kind: What it was, in its client's words.
        location: The object or prefix, with the bucket if that is known.
        bucket: The bucket, or words for it.
    """

    kind: str = ""
    location: str = "what is in the store"
    bucket: str = "of the lake"

    @classmethod
    def in_bucket(cls, kind: str, path: str) -> "_Request":
        """Returns a request for `path`, the bucket and a key."""
        return cls(kind, f"s3://{path}", path.partition("/")[0])


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
    store = store or storage.opened_store()
    if store in ("gs", "azure"):
        return cloud_errors.meaning(text, store, storage.endpoint(store))
    sentence = _sentence(text)
    if sentence is None:
        return None
    request = _failed_request(text)
    verb, grant = next((verb, grant) for words, verb, grant in _OPERATIONS if re.search(words, request.kind.lower()))
    region, answer, cause = _REGION.search(text), _ANSWER.search(text), _CAUSE.search(text)
    url = _DELTA_REQUEST.search(text)
    return sentence.format(
        bucket=request.bucket,
        region=f" ({next(filter(None, region.groups()))})" if region else "",
        operation=f"{verb} {request.location}",
        grant=grant,
        answer=answer[0].strip() if answer else "no success",
        endpoint=f" at {urlparse(url[2]).scheme}://{urlparse(url[2]).netloc}" if url else "",
        cause=f" ({cause[0]})" if cause else "",
    )


def outage(text: str, store: str = "") -> str | None:
    """Returns what an error's text says of a store that is away or overloaded; None for any other error.

    Waiting mends such an error, and no other error of a store. The arguments are those of `meaning`.
    """
    store = store or storage.opened_store()
    if store in ("gs", "azure"):
        is_outage = cloud_errors.is_outage(text, store)
    else:
        is_outage = _sentence(text) in (_OVERLOADED, _AWAY)
    return str(meaning(text, store)).partition(": run the command again")[0] if is_outage else None


def _sentence(text: str) -> str | None:
    """Returns the sentence of `_MEANINGS` for an error's text; None if it is no error of a store."""
    if not _STORE.search(text):
        return None
    return next((sentence for words, sentence in _MEANINGS if re.search(words, text)), None)


@contextmanager
def without_panics(location: str) -> Iterator[None]:
    """Keeps reports of Rust's panics off standard error while delta-rs writes data files to an object store.

    When a put fails, object_store 0.13 shuts its BufWriter down twice, which panics in a thread of delta-rs's. Rust
    reports that on standard error by itself; the caller gets the put's error as an exception anyway. Everything else
    that is written to standard error meanwhile appears after the write.
    """
    if is_local(location) or not _redirecting.acquire(blocking=False):
        yield
        return
    try:
        with TemporaryFile() as file:
            sys.stderr.flush()
            stderr = os.dup(2)
            os.dup2(file.fileno(), 2)
            try:
                yield
            finally:
                sys.stderr.flush()
                os.dup2(stderr, 2)
                os.close(stderr)
                file.seek(0)
                os.write(2, _PANIC.sub(b"", file.read()))
    finally:
        _redirecting.release()


def _failed_request(text: str) -> _Request:
    if match := _DELTA_REQUEST.search(text):
        url = urlparse(match[2])
        query = parse_qs(url.query, keep_blank_values=True)
        kind = "list" if "list-type" in query else "delete" if "delete" in query else match[1]
        host = [url.netloc.partition(".")[0]] if storage.buckets_are_in_hosts() else []
        return _Request.in_bucket(kind, "/".join([*host, unquote(url.path).strip("/"), *query.get("prefix", ())]))
    if match := _DELTA_DELETE.search(text):
        return _Request("delete", match[1])
    if match := _ARROW_REQUEST.search(text):
        return _Request.in_bucket(match[3], f"{match[2]}/{match[1]}")
    if match := _SPARK_FILE.search(text):
        return _Request.in_bucket("read", match[1])
    if match := _SPARK_REQUEST.search(text):
        return _Request.in_bucket(match[1], match[3]) if match[2] else _Request(match[1], match[3])
    return _Request()
