"""The errors of S3, and of stores that speak it, as delta-rs, Arrow and Spark word them."""

import re
from urllib.parse import parse_qs, unquote, urlparse

from zync.lake import storage
from zync.lake.store_wording import AWAY, OVERLOADED, REFUSED, Request, StoreErrors

_SIGN = re.compile(
    r"Generic S3 error|Error performing [A-Z]+ |AWS Error |Service: S3|software\.amazon\.awssdk|hadoop\.fs\.s3a|"
    r"error occurred while loading credentials|no credentials found in chain"
)
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
        REFUSED,
    ),
    (
        "SlowDown|SLOW_DOWN|reduce your request rate|50[0234] (Internal|Bad Gateway|Service|Gateway)|"
        "(HTTP status|Status Code:) 50[0234]|SERVICE_UNAVAILABLE|INTERNAL_FAILURE",
        OVERLOADED,
    ),
    (
        "error sending request|NETWORK_CONNECTION|Unable to execute HTTP request|curlCode|operation timed out|"
        "Connection reset|connection closed|execution did not complete before the specified timeout",
        AWAY,
    ),
)
_DELTA_REQUEST = re.compile(r"Error performing ([A-Z]+) (https?://\S+) in ")
_DELTA_DELETE = re.compile(r"DeleteObjects request failed for key ([^\s:]+)")
_ARROW_REQUEST = re.compile(r"key '([^']*)' in bucket '([^']*)'.*? during (\w+) operation")
_SPARK_REQUEST = re.compile(r"([\w#()/ -]+?) +on (s3a?://)?([^\s:]+):")
_SPARK_FILE = re.compile(r"(?:reading file|accessing) s3a?://([^\s,]+[^\s,.])")
_KINDS = (
    ("list", "list"),
    ("delete|remove", "delete"),
    ("put|post|upload|write|writing|copy", "write"),
)
"""What the clients call requests of each kind; the others read."""
_GRANTS = {
    "list": "s3:ListBucket on the bucket",
    "read": "s3:GetObject on it, and s3:ListBucket on the bucket (without which S3 also hides what is gone)",
    "write": "s3:PutObject on it",
    "delete": "s3:DeleteObject on it",
}


def _failed_request(text: str) -> Request:
    if match := _DELTA_REQUEST.search(text):
        url = urlparse(match[2])
        query = parse_qs(url.query, keep_blank_values=True)
        operation = "list" if "list-type" in query else "delete" if "delete" in query else match[1]
        host = [url.netloc.partition(".")[0]] if storage.buckets_are_in_hosts() else []
        path = "/".join([*host, unquote(url.path).strip("/"), *query.get("prefix", ())])
        return _in_bucket(operation, path, f"{url.scheme}://{url.netloc}")
    if match := _DELTA_DELETE.search(text):
        return Request("delete", match[1])
    if match := _ARROW_REQUEST.search(text):
        return _in_bucket(match[3], f"{match[2]}/{match[1]}")
    if match := _SPARK_FILE.search(text):
        return _in_bucket("read", match[1])
    if match := _SPARK_REQUEST.search(text):
        return _in_bucket(match[1], match[3]) if match[2] else Request(_kind(match[1]), match[3])
    return Request()


def _in_bucket(operation: str, path: str, server: str = "") -> Request:
    """Returns a request for `path`, the bucket and a key."""
    return Request(_kind(operation), f"s3://{path}", path.partition("/")[0], server)


def _kind(operation: str) -> str:
    """Returns the kind of a request of which the client says `operation`."""
    return next((kind for words, kind in _KINDS if re.search(words, operation.lower())), "read")


S3 = StoreErrors(_SIGN, _MEANINGS, _GRANTS, _failed_request)
