"""Says in a line what an error of Google Cloud Storage or of Azure means and what to do.

As in S3 (store_errors.py), delta-rs, Arrow and Spark word the same error in three ways.
"""

import re
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlparse

_AWAY = (
    "the store{endpoint} does not answer{cause}: run the command again once it does, or correct the endpoint or the "
    "account's name"
)
_BUSY = "the store fails or is overloaded, also after several attempts ({answer}): run the command again later"
_REFUSED = "no permission to {operation}: grant {grant}"

_Meanings = tuple[tuple[str, str], ...]
_GS: _Meanings = (
    (
        "NoSuchBucket|specified bucket does not exist",
        "the store has no bucket {bucket}: create it, or correct the lake's address",
    ),
    (
        "invalid_grant|invalid_rapt|401 Unauthorized|UNAUTHENTICATED|Invalid Credentials",
        "the store refuses the credentials, which may have expired: renew them, and run the command again",
    ),
    (
        r"token request|OAuth2 access token|[Dd]efault [Cc]redentials|169\.254\.169\.254|metadata\.google\.internal|"
        "computeMetadata",
        "there are no credentials for the store: set GOOGLE_APPLICATION_CREDENTIALS or storage.credentials_file, or "
        "run `gcloud auth application-default login`",
    ),
    (r"AccessDenied|PERMISSION_DENIED|403 Forbidden|does not have storage\.", _REFUSED),
    (
        "SlowDown|rateLimitExceeded|RESOURCE_EXHAUSTED|429 Too Many|"
        r"50[0234] (Internal|Bad Gateway|Service|Gateway)|http_status_code=50[0234]",
        _BUSY,
    ),
    ("error sending request|CURL error|Connection refused|timed out|Connection reset|UnknownHostException", _AWAY),
)
_AZURE: _Meanings = (
    (
        "ContainerNotFound|FilesystemNotFound|specified (container|filesystem) does not exist",
        "the store has no container {bucket}: create it, or correct the lake's address",
    ),
    (
        "Signature not valid in the specified time frame|Signature expiry",
        "the shared access signature has expired: renew AZURE_STORAGE_SAS_TOKEN or storage.sas_token",
    ),
    (
        "AuthenticationFailed|failed to authenticate the request|InvalidAuthenticationInfo|NoAuthenticationInformation",
        "the store refuses the credentials: correct AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or the keys of "
        "storage in the config",
    ),
    (
        r"token request|AADToken|AADSTS|CredentialUnavailable|AzureCredential|ManagedIdentity|IMDS|"
        r"169\.254\.169\.254|Invalid account key|account key is not",
        "there are no credentials for the store: set AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, or "
        "AZURE_CLIENT_ID, AZURE_CLIENT_SECRET and AZURE_TENANT_ID, or run where there is a managed identity",
    ),
    (
        "AuthorizationPermissionMismatch|AuthorizationFailure|InsufficientAccountPermissions|"
        "lacked the necessary privileges|403 Forbidden|, 403, |This request is not authorized",
        _REFUSED,
    ),
    (r"ServerBusy|50[0234] (Internal|Bad Gateway|Service|Gateway)|, 50[0234], |\] 50[0234] ", _BUSY),
    (
        "error sending request|Fail to get a new connection|Connection refused|timed out|Connection reset|"
        "UnknownHostException|, -1, ",
        _AWAY,
    ),
)
"""What an error contains, and what is said of it. The first that fits counts."""
_STORE = re.compile(
    r"Generic (GCS|MicrosoftAzure) error|Error performing [A-Z]+ |google::cloud::Status|Azure Error|"
    r"GoogleJsonResponseException|Operation failed: \"|/storage/v1/b/|lacked the necessary privileges|"
    r"oauth2|Default Credentials|AADToken|hadoop\.fs\.azurebfs|Error performing token request"
)
"""What an error of a store has somewhere: other errors may contain the words above, too."""
_REQUEST = re.compile(r"\b(GET|HEAD|PUT|POST|PATCH|DELETE),? (https?://[^\s,\"']+)")
_REDACTED = re.compile(r"Error performing ([A-Z]+) REDACTED")
"""delta-rs's words where the address has a shared access signature."""
_PATH = re.compile(r"for path (\S+)")
_BULK = re.compile(r"Error performing (?:bulk )?(list|delete) request")
_ARROW_AZURE = re.compile(r"for '(https?://[^\s']+)'")
_ANSWER = re.compile(r"\b(50[0234]|429) ?([A-Z][A-Za-z ]+)?|SlowDown|ServerBusy|RESOURCE_EXHAUSTED")
_CAUSE = re.compile(
    r"(Connection refused|[Tt]imed out|Name or service not known|failed to lookup address|Connection reset|"
    r"Could not (connect|resolve host)|UnknownHostException)"
)
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_GRANTS = {
    "gs": {kind: f"storage.objects.{verb}" for kind, verb in (("list", "list"), ("read", "get"), ("delete", "delete"))}
    | {"write": "storage.objects.create, and storage.objects.delete to overwrite"},
    "azure": {
        "list": f"{_BLOBS}/read",
        "read": f"{_BLOBS}/read",
        "write": f"{_BLOBS}/write",
        "delete": f"{_BLOBS}/delete",
    },
}
"""The permission that a request of each kind needs."""


_KINDS = {"GET": "read", "HEAD": "read", "DELETE": "delete"}
"""What requests of a method do; those of the others write."""


class _Request(NamedTuple):
    """The request that failed, as far as its error names it.

    Attributes:
        kind: `list`, `read`, `write` or `delete`.
        bucket: The bucket or container, or words for it.
        key: The object or prefix; empty if it is not known.
        server: The server's URL; empty if it is not known.
    """

    kind: str = "read"
    bucket: str = "of the lake"
    key: str = ""
    server: str = ""


def is_outage(text: str, store: str) -> bool:
    """Returns whether an error's text says that the store (`gs` or `azure`) is away or overloaded."""
    return _sentence(text, store) in (_AWAY, _BUSY)


def _sentence(text: str, store: str) -> str | None:
    """Returns the sentence for an error's text; None if it is no error of the store."""
    if not _STORE.search(text):
        return None
    return next((sentence for words, sentence in (_GS if store == "gs" else _AZURE) if re.search(words, text)), None)


def meaning(text: str, store: str, endpoint: str) -> str | None:
    """Returns what an error's text means, as a line without a full stop; None if it is no error of the store.

    Args:
        text: The error's text.
        store: `gs` or `azure`.
        endpoint: The endpoint that is set, of which a path is no part of a location; empty for the cloud's own.
    """
    sentence = _sentence(text, store)
    if sentence is None:
        return None
    request = _failed_request(text, urlparse(endpoint).path.strip("/"))
    scheme, answer, cause = "gs" if store == "gs" else "az", _ANSWER.search(text), _CAUSE.search(text)
    location = f"{scheme}://{request.bucket}/{request.key}" if request.server and request.key else request.key
    return sentence.format(
        bucket=request.bucket,
        operation=f"{request.kind} {location or 'what is in the store'}",
        grant=_GRANTS[store][request.kind],
        answer=answer[0].strip() if answer else "no success",
        endpoint=f" at {request.server}" if request.server else "",
        cause=f" ({cause[0]})" if cause else "",
    )


def _failed_request(text: str, prefix: str) -> _Request:
    match, arrow, bulk = _REQUEST.search(text), _ARROW_AZURE.search(text), _BULK.search(text)
    if not match and not arrow:
        redacted, named = _REDACTED.search(text), _PATH.search(text)
        kind = bulk[1] if bulk else _KINDS.get(redacted[1], "write") if redacted else "read"
        return _Request(kind, key=named[1] if named else "")
    method, address = (match[1], match[2]) if match else ("GET", str(arrow[1]) if arrow else "")
    url = urlparse(address)
    query, server = parse_qs(url.query, keep_blank_values=True), f"{url.scheme}://{url.netloc}"
    path = unquote(url.path).strip("/").removeprefix(f"{prefix}/")
    if json_api := re.search(r"storage/v1/b/([^/]+)/o/?(.*)", path):
        bucket, key = json_api[1], json_api[2] or query.get("name", query.get("prefix", [""]))[0]
        is_list = method == "GET" and not json_api[2]
    else:
        bucket, _, key = path.partition("/")
        is_list = method == "GET" and ("list-type" in query or "list" in query.get("comp", ()))
        is_list = is_list or query.get("resource") == ["filesystem"]
        key = key or query.get("prefix", query.get("directory", [""]))[0]
    kind = bulk[1] if bulk else "list" if is_list else _KINDS.get(method, "write")
    return _Request(kind, bucket or "of the lake", key, server)
