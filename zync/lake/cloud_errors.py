"""The errors of Google Cloud Storage and of Azure, as delta-rs, Arrow and Spark word them."""

import re
from functools import partial
from urllib.parse import parse_qs, unquote, urlparse

from zync.lake import storage
from zync.lake.store_wording import AWAY_OR_ANOTHER_ACCOUNT, OVERLOADED, REFUSED, Request, StoreErrors

_GS_MEANINGS = (
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
    (r"AccessDenied|PERMISSION_DENIED|403 Forbidden|does not have storage\.", REFUSED),
    (
        "SlowDown|rateLimitExceeded|RESOURCE_EXHAUSTED|429 Too Many|"
        r"50[0234] (Internal|Bad Gateway|Service|Gateway)|http_status_code=50[0234]",
        OVERLOADED,
    ),
    (
        "error sending request|CURL error|Connection refused|timed out|Connection reset|UnknownHostException",
        AWAY_OR_ANOTHER_ACCOUNT,
    ),
)
_AZURE_MEANINGS = (
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
        REFUSED,
    ),
    (r"ServerBusy|50[0234] (Internal|Bad Gateway|Service|Gateway)|, 50[0234], |\] 50[0234] ", OVERLOADED),
    (
        "error sending request|Fail to get a new connection|Connection refused|timed out|Connection reset|"
        "UnknownHostException|, -1, ",
        AWAY_OR_ANOTHER_ACCOUNT,
    ),
)
_SIGN = re.compile(
    r"Generic (GCS|MicrosoftAzure) error|Error performing [A-Z]+ |google::cloud::Status|Azure Error|"
    r"GoogleJsonResponseException|Operation failed: \"|/storage/v1/b/|lacked the necessary privileges|"
    r"oauth2|Default Credentials|AADToken|hadoop\.fs\.azurebfs|Error performing token request"
)
_REQUEST = re.compile(r"\b(GET|HEAD|PUT|POST|PATCH|DELETE),? (https?://[^\s,\"']+)")
_REDACTED = re.compile(r"Error performing ([A-Z]+) REDACTED")
"""delta-rs's words where the address has a shared access signature."""
_PATH = re.compile(r"for path (\S+)")
_BULK = re.compile(r"Error performing (?:bulk )?(list|delete) request")
_ARROW_AZURE = re.compile(r"for '(https?://[^\s']+)'")
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_GS_GRANTS = {
    "list": "storage.objects.list",
    "read": "storage.objects.get",
    "write": "storage.objects.create, and storage.objects.delete to overwrite",
    "delete": "storage.objects.delete",
}
_AZURE_GRANTS = {
    "list": f"{_BLOBS}/read",
    "read": f"{_BLOBS}/read",
    "write": f"{_BLOBS}/write",
    "delete": f"{_BLOBS}/delete",
}
_KINDS = {"GET": "read", "HEAD": "read", "DELETE": "delete"}
"""What requests of a method do; those of the others write."""


def _failed_request(text: str, store: str, scheme: str) -> Request:
    match, arrow, bulk = _REQUEST.search(text), _ARROW_AZURE.search(text), _BULK.search(text)
    if not match and not arrow:
        redacted, named = _REDACTED.search(text), _PATH.search(text)
        kind = bulk[1] if bulk else _KINDS.get(redacted[1], "write") if redacted else "read"
        return Request(kind, named[1]) if named else Request(kind)
    method, address = (match[1], match[2]) if match else ("GET", str(arrow[1]) if arrow else "")
    url, prefix = urlparse(address), urlparse(storage.endpoint(store)).path.strip("/")
    query, server = parse_qs(url.query, keep_blank_values=True), f"{url.scheme}://{url.netloc}"
    path = unquote(url.path).strip("/").removeprefix(f"{prefix}/")  # a path of the endpoint is no part of a location
    if json_api := re.search(r"storage/v1/b/([^/]+)/o/?(.*)", path):
        bucket, key = json_api[1], json_api[2] or query.get("name", query.get("prefix", [""]))[0]
        is_list = method == "GET" and not json_api[2]
    else:
        bucket, _, key = path.partition("/")
        is_list = method == "GET" and ("list-type" in query or "list" in query.get("comp", ()))
        is_list = is_list or query.get("resource") == ["filesystem"]
        key = key or query.get("prefix", query.get("directory", [""]))[0]
    kind = bulk[1] if bulk else "list" if is_list else _KINDS.get(method, "write")
    bucket = bucket or "of the lake"
    return Request(kind, f"{scheme}://{bucket}/{key}" if key else "what is in the store", bucket, server)


GS = StoreErrors(_SIGN, _GS_MEANINGS, _GS_GRANTS, partial(_failed_request, store="gs", scheme="gs"))
AZURE = StoreErrors(_SIGN, _AZURE_MEANINGS, _AZURE_GRANTS, partial(_failed_request, store="azure", scheme="az"))
