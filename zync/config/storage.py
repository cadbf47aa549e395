"""How a lake's object store is reached: the section `storage` of the config."""

from dataclasses import dataclass, field

FURTHER_STORAGE_OPTIONS = (
    "aws_checksum_algorithm",
    "aws_container_authorization_token_file",
    "aws_container_credentials_full_uri",
    "aws_container_credentials_relative_uri",
    "aws_disable_tagging",
    "aws_ec2_metadata_disabled",
    "aws_endpoint_url_sts",
    "aws_force_credential_load",
    "aws_iam_role_arn",
    "aws_iam_role_session_name",
    "aws_imdsv1_fallback",
    "aws_metadata_endpoint",
    "aws_request_payer",
    "aws_role_arn",
    "aws_role_session_name",
    "aws_s3_express",
    "aws_server_side_encryption",
    "aws_skip_signature",
    "aws_sse_bucket_key_enabled",
    "aws_sse_customer_key_base64",
    "aws_sse_kms_key_id",
    "aws_unsigned_payload",
    "aws_web_identity_token_file",
    "azure_authority_host",
    "azure_disable_tagging",
    "azure_msi_endpoint",
    "azure_object_id",
    "azure_msi_resource_id",
    "azure_use_azure_cli",
    "google_skip_signature",
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "http1_only",
    "http2_only",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_ca_certificate",
    "proxy_excludes",
    "proxy_url",
    "randomize_addresses",
    "timeout",
    "user_agent",
    "backoff_config.base",
    "backoff_config.init_backoff",
    "backoff_config.max_backoff",
    "max_retries",
    "retry_timeout",
)
"""delta-rs's options for object stores that are not `Storage`'s own keys, by the names of object_store 0.13, which it
uses. Those that choose another fence than the conditional put are not among them."""


@dataclass(frozen=True)
class Storage:
    """How the lake's object store is reached, alike by delta-rs, Arrow and Spark.

    What is not named here is found in the environment, as by the cloud's own tools. Further options of delta-rs may be
    set under their own names, like `aws_request_payer: requester`; Arrow and Spark do not see those. The section holds
    for all tables in object stores that a command opens.

    Attributes:
        endpoint: URL of a store that speaks S3, of a private endpoint of Google Cloud Storage, or of an Azure account's
            blob service, `http://…` or `https://…`. Default: the cloud's own.
        region: Region of the bucket, in S3.
        path_style: Whether the bucket is named in the URL's path (`https://store/bucket`), not in its host. Needs
            `endpoint`. Default: true.
        access_key_id: Id of the access key. Needs `secret_access_key`.
        secret_access_key: The access key's secret, best as `${NAME}` or `${file:PATH}`. Needs `access_key_id`.
        session_token: Token of temporary keys. Needs `access_key_id`.
        credentials_file: File with application default credentials, in Google Cloud Storage.
        account: Name of the storage account, in Azure: for `az://container/…`, which does not name it.
        account_key: Key of the Azure account, best as `${NAME}` or `${file:PATH}`.
        sas_token: Token of a shared access signature, in place of a key.
        tenant_id: Id of the tenant of `client_id`. Needs `client_id`.
        client_id: Id of an application in Azure, or of a managed identity that you assigned to the machine.
        client_secret: Secret of the application. Needs `client_id` and `tenant_id`.
        options: Further options of delta-rs, by name.
    """

    endpoint: str = ""
    region: str = ""
    path_style: bool | None = None
    access_key_id: str = field(default="", repr=False)
    secret_access_key: str = field(default="", repr=False)
    session_token: str = field(default="", repr=False)
    credentials_file: str = ""
    account: str = ""
    account_key: str = field(default="", repr=False)
    sas_token: str = field(default="", repr=False)
    tenant_id: str = ""
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    options: dict[str, str] = field(
        default_factory=dict, metadata={"key": None, "further": FURTHER_STORAGE_OPTIONS}, repr=False
    )
