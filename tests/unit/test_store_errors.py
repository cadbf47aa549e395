"""Errors of stores as delta-rs, Arrow and Spark were seen to word them, and what zync says instead."""

import os
import time
from pathlib import Path

import pytest

from zync.lake.panics import without_panics
from zync.lake.store_errors import meaning

_BODY = '<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{}</Code><Message>{}</Message></Error>'
_ARROW = "\x1b[31m↳\x1b[0m"


def of_delta_rs(method: str, path: str, answer: str) -> str:
    return (
        f"Kernel error -> Generic S3 error\n  {_ARROW} Error performing {method} http://localhost:9000/{path} in 1.9ms "
        f"- Server returned non-2xx status code\n    {_ARROW} {answer}\n"
    )


DENIED = f"403 Forbidden\n {_ARROW} {_BODY.format('AccessDenied', 'Access Denied')}"
S3A = "software.amazon.awssdk.services.s3.model.S3Exception: Access Denied (Service: S3, Status Code: 403)"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (of_delta_rs("GET", "lake/raw/a", DENIED), "no permission to read s3://lake/raw/a: grant s3:GetObject on it"),
        (
            of_delta_rs("GET", "lake?list-type=2&prefix=raw%2F_delta_log%2F", DENIED),
            "no permission to list s3://lake/raw/_delta_log/: grant s3:ListBucket",
        ),
        (of_delta_rs("PUT", "lake/raw/a", DENIED), "no permission to write s3://lake/raw/a: grant s3:PutObject on it"),
        (of_delta_rs("POST", "lake/raw/a?uploads", DENIED), "no permission to write s3://lake/raw/a: "),
        (of_delta_rs("DELETE", "lake/raw/a", DENIED), "no permission to delete s3://lake/raw/a: grant s3:DeleteObject"),
        (of_delta_rs("POST", "lake?delete=", DENIED), "no permission to delete s3://lake: "),
        (
            f"Generic S3 error\n {_ARROW} DeleteObjects request failed for key raw/a: (code: AccessDenied)",
            "no permission to delete raw/a: grant s3:DeleteObject on it",
        ),
        (
            of_delta_rs("PUT", "lake/a", f"501 Not Implemented\n {_ARROW} {_BODY.format('NotImplemented', 'no')}"),
            "the store does not know a request that zync needs, probably the conditional put",
        ),
        (
            "When listing objects under key 't/' in bucket 'lake': AWS Error ACCESS_DENIED during ListObjectsV2 "
            "operation: Access Denied",
            "no permission to list s3://lake/t/",
        ),
        (
            "When initiating multiple part upload for key 'x' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) "
            "during CreateMultipartUpload operation: Unable to parse ExceptionName: ExpiredToken Message: The provided "
            "token has expired.",
            "the store's credentials have expired: ",
        ),
        (
            "When getting information for key 'x' in bucket 'lake': AWS Error UNKNOWN (HTTP status 400) during "
            "HeadObject operation: No response body.",
            "the store refuses the credentials, which may have expired: ",
        ),
        (
            "When getting information for key 'x' in bucket 'lake': AWS Error UNKNOWN (HTTP status 301) during "
            "HeadObject operation: No response body. Looks like the configured region is 'eu-central-1' while the "
            "bucket is located in 'us-east-1'.",
            "the bucket lake is in another region (us-east-1): ",
        ),
        (f"s3://lake/t: listObjects() on s3://lake/t: {S3A}:AccessDenied", "no permission to list s3://lake/t: "),
        (f"w/0: PUT 0-byte object  on w/0: {S3A}:AccessDenied", "no permission to write w/0: grant s3:PutObject on it"),
        (f"s3://lake/w: Remove S3 Files on s3://lake/w: {S3A}", "no permission to delete s3://lake/w: "),
        (
            "Encountered error while reading file s3://lake/t/part-0.parquet. Could not read footer.\nAccess Denied "
            "(Service: S3, Status Code: 403, Request ID: 4)",
            "no permission to read s3://lake/t/part-0.parquet: ",
        ),
        (
            of_delta_rs("GET", "lake/a", "HTTP error").replace(
                "HTTP error", "error sending request\n client error (Connect)\n Connection refused (os error 111)"
            ),
            "the store at http://localhost:9000 does not answer (Connection refused): ",
        ),
    ],
)
def test_the_line_says_what_and_where(text: str, said: str) -> None:
    line = meaning(text)
    assert line is not None
    assert line.startswith(said)
    assert "\n" not in line


@pytest.mark.parametrize(
    "text",
    [
        "AccessDenied is what the record says",
        "[CAST_INVALID_INPUT] The value 'SlowDown 503 Service' cannot be cast",
        of_delta_rs("GET", "lake/raw/a", f"404 Not Found\n {_ARROW} {_BODY.format('NoSuchKey', 'no such key')}"),
        "Object at location raw/_delta_log/1.json already exists: 412 Precondition Failed",
    ],
)
def test_other_errors_are_left_as_they_are(text: str) -> None:
    assert meaning(text) is None


PANIC = """
thread 'tokio-rt-worker' (10541) panicked at object_store-0.13.2/src/buffered.rs:369:41:
Already shut down
stack backtrace:
note: Some details are omitted, run with `RUST_BACKTRACE=full` for a verbose backtrace.
"""


def test_a_panic_of_a_put_is_not_shown_and_all_else_is(capfd: pytest.CaptureFixture[str]) -> None:
    def refused() -> None:
        os.write(2, f"before{PANIC}after\n".encode())
        raise OSError

    with pytest.raises(OSError), without_panics("s3://lake/raw"), without_panics("s3://lake/raw"):  # noqa: PT011
        refused()
    assert capfd.readouterr().err == "beforeafter\n"


def test_a_report_that_is_written_bit_by_bit_is_not_shown(capfd: pytest.CaptureFixture[str]) -> None:
    """As by a machine with much to do, which looks for the names of a backtrace."""
    with without_panics("s3://lake/raw"):
        for line in f"before{PANIC}".splitlines(keepends=True):
            os.write(2, line.encode())
            time.sleep(0.3)
    assert capfd.readouterr().err == "before\n"


def test_what_is_written_meanwhile_is_shown_at_once(capfd: pytest.CaptureFixture[str]) -> None:
    """A write may take a minute."""
    with without_panics("s3://lake/raw"):
        os.write(2, f"before{PANIC}after\n".encode())
        seen, until = "", time.monotonic() + 10
        while not seen and time.monotonic() < until:
            seen = capfd.readouterr().err
        os.write(2, b"end\n")
    assert (seen, capfd.readouterr().err) == ("beforeafter\n", "end\n")


def test_a_local_table_writes_to_standard_error_as_ever(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with without_panics(str(tmp_path)):
        os.write(2, PANIC.encode())
        assert capfd.readouterr().err == PANIC
