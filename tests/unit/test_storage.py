"""What `storage:` says is what delta-rs, Arrow and Spark are told, and nobody else."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from zync.config.storage import Storage
from zync.errors import UsageError
from zync.lake import storage
from zync.lake.paths import locate
from zync.lake.table import first_line
from zync.project.load import load
from zync.spark.session import _SECRET

LAKE = "s3://bucket/lake"
SECRET = "s3cr3t-of-the-store"  # noqa: S105
KEYS = {"access_key_id": "me", "secret_access_key": SECRET}


@pytest.fixture(autouse=True)
def without_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in (*os.environ,):
        if name.startswith(("AZURE_", "GOOGLE_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    for name in ("ENDPOINT_URL", "REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    yield
    storage.use(Storage())


def written(folder: Path, text: str) -> Path:
    path = folder / "zync.yaml"
    path.write_text(text)
    return path


def test_one_section_serves_delta_rs_and_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("s3cr3t-of-the-store\n")
    monkeypatch.setenv("TOKEN", "t0ken-of-the-store")
    config = load(
        written(
            tmp_path,
            f"""
lake: {LAKE}
storage:
  endpoint: http://store.example:9000
  region: eu-central-1
  access_key_id: me
  secret_access_key: ${{file:key}}
  session_token: ${{TOKEN}}
  aws_request_payer: requester
  timeout: 7s
""",
        )
    )
    options, properties = storage.delta_options(f"{LAKE}/raw"), storage.spark_properties(LAKE)
    assert options is not None
    assert (
        options
        | {
            "aws_endpoint_url": "http://store.example:9000",
            "allow_http": "true",
            "aws_region": "eu-central-1",
            "aws_access_key_id": "me",
            "aws_secret_access_key": "s3cr3t-of-the-store",
            "aws_session_token": "t0ken-of-the-store",
            "aws_request_payer": "requester",
            "timeout": "7s",
        }
        == options
    )
    s3a = {name.removeprefix("spark.hadoop.fs.s3a."): value for name, value in properties.items()}
    assert s3a["endpoint"] == "http://store.example:9000"
    assert s3a["endpoint.region"] == "eu-central-1"
    assert s3a["path.style.access"] == "true"
    assert (s3a["access.key"], s3a["secret.key"], s3a["session.token"]) == (
        "me",
        "s3cr3t-of-the-store",
        "t0ken-of-the-store",
    )
    assert s3a["aws.credentials.provider"].endswith(".TemporaryAWSCredentialsProvider")
    for secret in ("s3cr3t-of-the-store", "t0ken-of-the-store"):
        assert all(_SECRET.search(name) for name, value in properties.items() if value == secret)
        assert secret not in repr(config)
        assert secret not in config.as_written(f"the store says {secret}")
    assert "s3cr3t-of-the-store" not in subprocess.run(["env"], capture_output=True, text=True, check=True).stdout
    assert storage.session_properties(LAKE)["fs.s3a.secret.key"] == "s3cr3t-of-the-store"


def test_a_config_without_the_section_leaves_all_to_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.use(Storage(region="eu-central-1", **KEYS))
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    load(written(tmp_path, f"lake: {LAKE}"))
    assert "s3cr3t" not in str(storage.delta_options(LAKE))
    assert storage.spark_properties(LAKE)["spark.hadoop.fs.s3a.endpoint.region"] == "us-east-1"
    assert storage.session_properties(LAKE) == {}


def test_a_local_lake_needs_nothing() -> None:
    assert storage.delta_options("/local/lake") is None
    assert storage.spark_properties("/local/lake") == {}


def test_a_bucket_may_be_in_the_host() -> None:
    storage.use(Storage(endpoint="https://store.example:9000", path_style=False))
    options = storage.delta_options(f"{LAKE}/raw")
    assert options is not None
    assert options["aws_endpoint_url"] == "https://bucket.store.example:9000"
    assert options["aws_virtual_hosted_style_request"] == "true"
    assert storage.spark_properties(LAKE)["spark.hadoop.fs.s3a.path.style.access"] == "false"
    assert storage.spark_properties(LAKE)["spark.hadoop.fs.s3a.endpoint"] == "https://store.example:9000"


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("{allow_unsafe_rename: true}", "storage.allow_unsafe_rename is not for zync: two writers would overwrite"),
        ("{AWS_S3_ALLOW_UNSAFE_RENAME: true}", "storage.AWS_S3_ALLOW_UNSAFE_RENAME is not for zync"),
        ("{aws_copy_if_not_exists: multipart}", "storage.aws_copy_if_not_exists is not for zync"),
        ("{aws_s3_locking_provider: dynamodb}", "storage.aws_s3_locking_provider is not for zync"),
        ("{aws_conditional_put: disabled}", "storage.aws_conditional_put is not for zync"),
        ("{endpont: 'https://store'}", "unknown key 'endpont' in storage: did you mean 'endpoint'?"),
        ("{aws_access_key_id: me}", "unknown key 'aws_access_key_id' in storage: did you mean 'access_key_id'?"),
        ("{endpoint: store:9000}", "storage.endpoint must begin with http:// or https://"),
        ("{endpoint: 'https://me:secret@store'}", "and have no user or password"),
        ("{access_key_id: me}", "storage.access_key_id needs storage.secret_access_key"),
        ("{session_token: t}", "storage.session_token needs storage.access_key_id"),
        ("{region: ''}", "storage.region is empty: name it, or take the key out"),
        ("{path_style: false}", "storage.path_style needs storage.endpoint"),
        ("{path_style: maybe}", "storage.path_style must be true or false, not 'maybe'"),
    ],
)
def test_a_wrong_section_is_refused_where_it_is(tmp_path: Path, section: str, message: str) -> None:
    path = written(tmp_path, f"lake: {LAKE}\nstorage: {section}")
    with pytest.raises(UsageError) as refused:
        load(path)
    assert str(refused.value).startswith(f"{path}:2: ")
    assert message in str(refused.value)


def test_a_section_without_a_store_is_a_mistake(tmp_path: Path) -> None:
    path = written(tmp_path, "lake: ./lake\nstorage: {region: eu-central-1}")
    with pytest.raises(UsageError, match=r"zync.yaml:2: storage is for a lake in an object store, and lake is \./lake"):
        load(path)
    assert load(path, "s3://bucket/lake").storage.region == "eu-central-1"
    assert load(path, "/tried/here").lake == "/tried/here"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("AWS_S3_ALLOW_UNSAFE_RENAME", "yes"),
        ("AWS_ALLOW_UNSAFE_RENAME", "TRUE"),
        ("AWS_S3_LOCKING_PROVIDER", "dynamodb"),
        ("AWS_COPY_IF_NOT_EXISTS", "multipart"),
        ("AWS_CONDITIONAL_PUT", "disabled"),
    ],
)
def test_a_variable_that_gives_the_conditional_put_away_is_refused(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    storage.delta_options("/local/lake")
    with pytest.raises(UsageError, match=rf"{name} is set: two writers would overwrite .* Unset it"):
        storage.delta_options(LAKE)


def test_a_variable_that_leaves_the_conditional_put_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "false")
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "etag")
    assert storage.delta_options(LAKE)


def test_a_token_of_other_keys_is_not_sent_with_those_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of-a-role")
    storage.delta_options(LAKE)
    storage.use(Storage(**KEYS))
    with pytest.raises(UsageError, match="AWS_SESSION_TOKEN is set, and is no token of storage.access_key_id"):
        storage.delta_options(LAKE)
    storage.use(Storage(**KEYS, session_token="t"))  # noqa: S106
    assert storage.delta_options(LAKE)


def test_keys_of_azure_reach_delta_rs_and_spark_and_no_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    location = "abfss://container@account.dfs.core.windows.net/lake"
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "of-the-environment")
    storage.use(Storage(account="account", client_id="me", tenant_id="t", client_secret=SECRET))
    options, properties = storage.delta_options(location), storage.spark_properties(location)
    assert options is not None
    assert options["azure_storage_client_secret"] == SECRET
    assert "of-the-environment" not in str(options) + str(properties)
    assert properties["spark.hadoop.fs.azure.account.oauth.provider.type"].endswith("ClientCredsTokenProvider")
    assert properties["spark.hadoop.fs.azure.account.oauth2.client.endpoint"].endswith("/t/oauth2/token")
    secret = [name for name, value in properties.items() if "s3cr3t" in value]
    assert secret
    assert all(_SECRET.search(name) for name in secret)
    assert locate("az://container/lake", "") == location


def test_an_identity_of_the_config_goes_before_a_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "of-the-environment")
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "of-another-application")
    storage.use(Storage(account="account", client_id="me"))
    location = "abfss://container@account.dfs.core.windows.net/lake"
    options, properties = storage.delta_options(location), storage.spark_properties(location)
    assert options is not None
    assert options["azure_storage_client_id"] == "me"
    assert "of-" not in str(options) + str(properties)


@pytest.mark.parametrize("lake", ["gs://bucket/lake", "az://container/lake"])
def test_iceberg_is_refused_where_zync_writes_none(tmp_path: Path, lake: str) -> None:
    (tmp_path / "out.sql").write_text("SELECT seqno FROM records")
    outputs = "outputs: [{topic: out, sql: out.sql}]"
    text = f"lake: {lake}\n{outputs}\ndeliver:\n  tables:\n    out: {{iceberg: true}}\n"
    with pytest.raises(
        UsageError, match=r"zync.yaml:5: deliver.tables.out.iceberg: zync writes no metadata of Iceberg"
    ):
        load(written(tmp_path, text))


@pytest.mark.parametrize(
    ("variables", "kind", "provider"),
    [
        ({"AZURE_STORAGE_ACCOUNT_KEY": "s3cr3t"}, "SharedKey", None),
        ({"AZURE_STORAGE_SAS_TOKEN": "sv=1&sig=s3cr3t"}, "SAS", None),
        ({"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_CLIENT_SECRET": "s3cr3t"}, "OAuth", "ClientCreds"),
        (
            {"AZURE_CLIENT_ID": "c", "AZURE_TENANT_ID": "t", "AZURE_FEDERATED_TOKEN_FILE": "/token"},
            "OAuth",
            "WorkloadIdentity",
        ),
        ({}, "OAuth", "Msi"),
    ],
)
def test_spark_takes_the_credentials_that_azures_tools_take_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], kind: str, provider: str | None
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    properties = storage.spark_properties("abfss://container@account.dfs.core.windows.net/lake")
    assert properties["spark.hadoop.fs.azure.account.auth.type"] == kind
    if provider:
        assert f".{provider}TokenProvider" in properties["spark.hadoop.fs.azure.account.oauth.provider.type"]
    assert all(_SECRET.search(name) for name, value in properties.items() if "s3cr3t" in value)


def test_a_shared_access_signature_is_in_no_error() -> None:
    error = OSError("Error performing POST https://account.blob.core.windows.net/c?sp=rw&sig=s3cr3t%3D in 30s")
    assert "s3cr3t" not in first_line(error)


def test_the_endpoint_of_an_emulator_of_google_is_that_of_delta_rs_and_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    assert storage.spark_properties("gs://bucket/lake")["spark.hadoop.fs.gs.auth.type"] == "APPLICATION_DEFAULT"
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "localhost:4443")
    options = storage.delta_options("gs://bucket/lake")
    assert options is not None
    assert options["google_base_url"] == "http://localhost:4443"
    properties = storage.spark_properties("gs://bucket/lake")
    assert properties["spark.hadoop.fs.gs.storage.root.url"] == "http://localhost:4443/"
    assert properties["spark.hadoop.fs.gs.auth.type"] == "UNAUTHENTICATED"
