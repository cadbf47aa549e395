"""Access to a lake in Azure, alike for delta-rs, Spark and Arrow.

The config's keys go before those of the environment, which have the names that Azure's own tools give them. They are
found here, and handed to each of the three: Hadoop's file system reads no environment. Without any, the machine's
managed identity is asked.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import urlparse

from zync.config.storage import Storage
from zync.errors import UsageError
from zync.lake.environment import first_variable

if TYPE_CHECKING:
    from pyarrow.fs import AzureFileSystem, FileSystem

SCHEMES = ("abfss", "abfs", "az")
_DOMAIN = "dfs.core.windows.net"
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"
_AUTHORITY = "https://login.microsoftonline.com"


@dataclass(frozen=True)
class _Credentials:
    """What is known of the credentials, with empty texts for what is not. The first that there is counts.

    Attributes:
        account_key: Key of the storage account.
        sas_token: Token of a shared access signature.
        client_secret: Secret of the application `client_id` in the tenant `tenant_id`.
        token_file: File with a token that Kubernetes renews, by which a workload identity is proved.
        client_id: Id of the application, or of a managed identity that the user assigned.
        tenant_id: Id of the tenant.
    """

    account_key: str = field(repr=False)
    sas_token: str = field(repr=False)
    client_secret: str = field(repr=False)
    token_file: str
    client_id: str
    tenant_id: str


def with_account(location: str, storage: Storage) -> str:
    """Returns an `az://container/…` location as `abfss://container@account…/…`, if the account is known.

    It is `abfs://` if the endpoint is an `http://` one, as of an emulator: Hadoop takes https for `abfss://`.
    """
    account = _account_name(storage)
    if not location.startswith("az://") or not account:
        return location
    container, _, path = location.removeprefix("az://").partition("/")
    scheme = "abfs" if endpoint(storage).startswith("http://") else "abfss"
    return f"{scheme}://{container}@{account}.{_DOMAIN}/{path}".rstrip("/")


def delta_options(location: str, storage: Storage) -> dict[str, str]:
    """Returns delta-rs's options for a table.

    Raises:
        UsageError: The location names no account, and neither do the config and the environment.
    """
    keys = _credentials(storage)
    options = {"azure_storage_account_name": _account(location, storage)}
    url = endpoint(storage)
    if url:
        options["azure_storage_endpoint"] = url
    if url.startswith("http://"):
        options["allow_http"] = "true"
    own = {
        "azure_storage_account_key": keys.account_key,
        "azure_storage_sas_key": keys.sas_token,
        "azure_storage_client_secret": keys.client_secret,
        "azure_federated_token_file": keys.token_file,
        "azure_storage_client_id": keys.client_id,
        "azure_storage_tenant_id": keys.tenant_id,
    }
    return {**options, **{key: value for key, value in own.items() if value}}


def spark_properties(location: str, storage: Storage) -> dict[str, str]:
    """Returns the properties by which Spark reads and writes a lake there."""
    properties = {
        # Hadoop's other client, Apache's, does not start for an endpoint without https.
        "spark.hadoop.fs.azure.networking.library": "JDK_HTTP_URL_CONNECTION",
        "spark.hadoop.fs.azure.io.retry.max.retries": "3",
        "spark.hadoop.fs.azure.io.retry.max.backoff.interval": "5000",
        "spark.hadoop.fs.azure.http.connection.timeout": "5000",
        "spark.hadoop.fs.azure.http.read.timeout": "30000",
        **{f"spark.hadoop.fs.azure.{name}": value for name, value in _authentication(location, storage).items()},
    }
    url = urlparse(endpoint(storage))
    if url.scheme == "http":
        properties["spark.hadoop.fs.azure.always.use.https"] = "false"
    if url.path.strip("/"):  # the account is in the URL's path, as Azurite has it: such a store has the Blob API only
        properties["spark.hadoop.fs.azure.abfs.endpoint"] = url.netloc
        properties["spark.hadoop.fs.azure.account.hns.enabled"] = "false"
        properties["spark.hadoop.fs.azure.fns.account.service.type"] = "BLOB"
    return properties


def _authentication(location: str, storage: Storage) -> dict[str, str]:
    """Returns the settings of Hadoop's file system for the credentials, by their names after `fs.azure.`."""
    keys = _credentials(storage)
    if keys.account_key:
        return {"account.auth.type": "SharedKey", f"account.key.{_host(location, storage)}": keys.account_key}
    if keys.sas_token:
        return {"account.auth.type": "SAS", "sas.fixed.token": keys.sas_token.removeprefix("?")}
    host = storage.options.get("azure_authority_host") or first_variable("AZURE_AUTHORITY_HOST") or _AUTHORITY
    authority = host.rstrip("/")
    if keys.client_secret:
        settings = {
            "oauth.provider.type": f"{_OAUTH}.ClientCredsTokenProvider",
            "oauth2.client.endpoint": f"{authority}/{keys.tenant_id}/oauth2/token",
            "oauth2.client.secret": keys.client_secret,
        }
    elif keys.token_file:
        settings = {
            "oauth.provider.type": f"{_OAUTH}.WorkloadIdentityTokenProvider",
            "oauth2.msi.authority": authority,
            "oauth2.msi.tenant": keys.tenant_id,
            "oauth2.token.file": keys.token_file,
        }
    else:
        settings = {"oauth.provider.type": f"{_OAUTH}.MsiTokenProvider"}
    if keys.client_id:
        settings["oauth2.client.id"] = keys.client_id
    return {"account.auth.type": "OAuth", **{f"account.{name}": value for name, value in settings.items()}}


def arrow_files(location: str, storage: Storage) -> "FileSystem":
    """Opens a folder as a file system."""
    from pyarrow.fs import SubTreeFileSystem  # noqa: PLC0415 - takes 0.1 s, and each config is read with this module

    authority, _, path = location.partition("://")[2].partition("/")
    client = _client(_account(location, storage), endpoint(storage), _credentials(storage))
    return SubTreeFileSystem(f"{authority.partition('@')[0]}/{path}", client)


@cache
def _client(account: str, address: str, keys: _Credentials) -> "AzureFileSystem":
    """Returns Arrow's client, which keeps its connections."""
    from pyarrow.fs import AzureFileSystem  # noqa: PLC0415

    options: dict[str, str] = {}
    if keys.account_key:
        options["account_key"] = keys.account_key
    elif keys.sas_token:
        options["sas_token"] = f"?{keys.sas_token.removeprefix('?')}"
    elif keys.client_secret:
        options |= {"tenant_id": keys.tenant_id, "client_id": keys.client_id, "client_secret": keys.client_secret}
    elif keys.client_id and not keys.token_file:
        options["client_id"] = keys.client_id  # of a managed identity
    if address:
        url = urlparse(address)
        authority = url.netloc.removeprefix(account)  # Arrow puts the account before a name that begins with a dot
        options |= dict.fromkeys(("blob_storage_scheme", "dfs_storage_scheme"), url.scheme)
        options |= {"blob_storage_authority": authority, "dfs_storage_authority": authority.replace(".blob.", ".dfs.")}
    return AzureFileSystem(account, **options)


def _credentials(storage: Storage) -> _Credentials:
    own = (storage.account_key, storage.sas_token, storage.client_secret)
    if any(own):  # no key of the environment goes before the config's
        return _Credentials(*own, "", storage.client_id, storage.tenant_id)
    if storage.client_id:
        tenant_id = storage.tenant_id or first_variable("AZURE_TENANT_ID")
        return _Credentials("", "", "", first_variable("AZURE_FEDERATED_TOKEN_FILE"), storage.client_id, tenant_id)
    return _Credentials(
        first_variable("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_KEY"),
        first_variable("AZURE_STORAGE_SAS_TOKEN"),
        first_variable("AZURE_CLIENT_SECRET"),
        first_variable("AZURE_FEDERATED_TOKEN_FILE"),
        first_variable("AZURE_CLIENT_ID"),
        storage.tenant_id or first_variable("AZURE_TENANT_ID"),
    )


def endpoint(storage: Storage) -> str:
    """Returns the endpoint that the config or the environment names; an empty text for the cloud's own."""
    return (storage.endpoint or first_variable("AZURE_STORAGE_ENDPOINT")).rstrip("/")


def _account_name(storage: Storage) -> str:
    return storage.account or first_variable("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_ACCOUNT")


def _account(location: str, storage: Storage) -> str:
    """Returns the name of the account of a location.

    Raises:
        UsageError: The location names none, and neither do the config and the environment.
    """
    host = location.partition("://")[2].partition("/")[0].partition("@")[2]
    account = host.partition(".")[0] or _account_name(storage)
    if not account:
        msg = (
            f"{location} does not say in which storage account the container is: set storage.account or "
            f"AZURE_STORAGE_ACCOUNT_NAME, or say abfss://CONTAINER@ACCOUNT.{_DOMAIN}/…"
        )
        raise UsageError(msg)
    return account


def _host(location: str, storage: Storage) -> str:
    return f"{_account(location, storage)}.{_DOMAIN}"
