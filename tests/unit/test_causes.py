"""Errors of the environment are told by what they are; all others may be the data's."""

import pytest

from zync.spark.causes import PYTHON_EXCEPTION, Thrown, has_environment_cause, is_environment_error, raised_in_python

SPARK = "org.apache.spark.SparkException"
THROWABLE = ("java.lang.Exception", "java.lang.Throwable", "java.lang.Object")
RUNTIME = ("java.lang.RuntimeException", *THROWABLE)
IO = ("java.io.IOException", *THROWABLE)


def spark(condition: str | None = None, state: str | None = None, message: str = "") -> Thrown:
    return Thrown((SPARK, *THROWABLE), message, condition, state)


def python(raised: str) -> Thrown:
    trace = f'Traceback (most recent call last):\n  File "rule.py", line 3, in price\n    raise it\n{raised}\n'
    message = f"An exception was thrown from the Python worker. Please see the stack trace below.:\n{trace}"
    return Thrown((PYTHON_EXCEPTION, *RUNTIME), message, "PYTHON_EXCEPTION", "38000")


def lost_task(what: str) -> Thrown:
    return spark(
        message="Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, most recent failure: Lost task "
        f"0.0 in stage 3.0 (TID 7) (10.0.0.1 executor 0): {what}"
    )


JOB = spark(message="Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times")
WRITE = spark("TASK_WRITE_FAILED", "58030")
MALFORMED = spark("MALFORMED_RECORD_IN_PARSING.WITHOUT_SUGGESTION", "22023")
JACKSON = Thrown(
    (
        "com.fasterxml.jackson.core.JsonParseException",
        "com.fasterxml.jackson.core.JsonProcessingException",
        "com.fasterxml.jackson.core.JacksonException",
        *IO,
    ),
    "Unrecognized token 'x'",
)

ENVIRONMENT_ERRORS = {
    "a file that is gone": [JOB, spark("FAILED_READ_FILE.FILE_NOT_EXIST", "KD001"), Thrown(IO)],
    "a file that cannot be read, whatever is in it": [JOB, spark("FAILED_READ_FILE.NO_HINT", "KD001"), MALFORMED],
    "no space left on the disk": [WRITE, Thrown(IO, "No space left on device")],
    "a network that is away": [Thrown(("java.net.ConnectException", "java.net.SocketException", *IO))],
    "a name that is none": [Thrown(("java.net.UnknownHostException", *IO))],
    "a worker process that died": [JOB, spark(message="Python worker exited unexpectedly (crashed)"), Thrown(IO)],
    "no memory": [JOB, Thrown(("java.lang.OutOfMemoryError", "java.lang.VirtualMachineError"), "Java heap space")],
    "no memory for an aggregation": [spark("UNABLE_TO_ACQUIRE_MEMORY", "53200")],
    "an executor that was lost": [lost_task("ExecutorLostFailure (executor 0 exited) Reason: Command exited with 137")],
    "rows of another task that were lost": [lost_task("FetchFailed(BlockManagerId(0, 10.0.0.1, 7337, None), shuffle")],
    "a task that was killed": [lost_task("TaskKilled (another attempt succeeded)")],
    "a file, told of in the text alone": [lost_task("java.io.FileNotFoundException: /x\n\tat java.base/java.io")],
    "a store": [Thrown(("software.amazon.awssdk.core.exception.SdkClientException", *RUNTIME))],
    "a Delta table that was changed meanwhile": [
        Thrown(("io.delta.exceptions.DeltaConcurrentModification", *THROWABLE))
    ],
    "a class that is not there": [JOB, Thrown(("java.lang.NoClassDefFoundError", "java.lang.LinkageError"))],
    "a broadcast that took too long": [
        spark("_LEGACY_ERROR_TEMP_2097"),
        Thrown(("java.util.concurrent.TimeoutException",)),
    ],
    "a job that was cancelled": [spark("SPARK_JOB_CANCELLED", "XXKDA")],
    "a context that was stopped": [spark(message="Job 3 cancelled because SparkContext was shut down")],
    "an application that lost its cluster": [
        Thrown(("java.lang.IllegalStateException", *RUNTIME), "Cannot call methods on a stopped SparkContext.\nThis")
    ],
    "a host that Python does not reach": [JOB, python("ConnectionError: no host")],
    "a class below one of Python's": [python("urllib.error.URLError: no host")],
    "a module that Python lacks": [WRITE, python("ModuleNotFoundError: No module named 'x'")],
    "an error of Python's without a word": [python("MemoryError")],
    "another Python in the workers": [
        python("pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH]")
    ],
}
DATA = {
    "text that is no JSON": [JOB, MALFORMED, Thrown(RUNTIME), JACKSON],
    "text that is no JSON, in what is written": [JOB, WRITE, MALFORMED, JACKSON],
    "a parser's own exception": [JACKSON],
    "bytes that are no text": [
        Thrown(("java.nio.charset.MalformedInputException", "java.nio.charset.CharacterCodingException", *IO))
    ],
    "a time that is too late": [Thrown(("java.lang.ArithmeticException", *RUNTIME), "long overflow")],
    "a pattern that is none": [
        Thrown(("java.util.regex.PatternSyntaxException", "java.lang.IllegalArgumentException"))
    ],
    "an index beyond": [Thrown(("java.lang.ArrayIndexOutOfBoundsException", *RUNTIME))],
    "a null that nobody expected": [
        spark("INTERNAL_ERROR", "XX000"),
        Thrown(("java.lang.NullPointerException", *RUNTIME)),
    ],
    "a function of somebody's": [spark("FAILED_EXECUTE_UDF", "39000"), Thrown(("scala.MatchError", *RUNTIME))],
    "a CSV line": [spark("MALFORMED_CSV_RECORD", "KD000")],
    "an array that no memory would hold": [
        Thrown(("java.lang.OutOfMemoryError", "java.lang.VirtualMachineError"), "Requested array size exceeds VM limit")
    ],
    "an exception told of in the text alone": [lost_task("com.example.PriceException: no price\n\tat com.example")],
    "what a rule in Python raises": [JOB, python("ValueError: thirteen")],
    "a class of the rule's own": [python("rule.PriceError: ConnectionError: of a record")],
    "what a rule in Python raises in place of another": [
        python(
            "ConnectionError: no host\n\nDuring handling of the above exception, another exception occurred:\n\n"
            "Traceback (most recent call last):\n  File \"rule.py\", line 5, in price\nKeyError: 'price'"
        )
    ],
}


@pytest.mark.parametrize("what", ENVIRONMENT_ERRORS)
def test_what_is_wrong_around_a_query_is_told_by_what_it_is(what: str) -> None:
    assert has_environment_cause(ENVIRONMENT_ERRORS[what])


@pytest.mark.parametrize("what", DATA)
def test_whatever_else_it_is_may_be_the_datas(what: str) -> None:
    assert not has_environment_cause(DATA[what])


@pytest.mark.parametrize(
    ("error", "expected"),
    [(FileNotFoundError("x"), True), (ConnectionError("x"), True), (ImportError("x"), True), (ValueError("x"), False)],
)
def test_so_are_pythons_own_errors(error: Exception, expected: bool) -> None:
    assert is_environment_error(error) is expected


def test_what_python_raised_last_is_in_the_line_below_its_traceback() -> None:
    trace = 'Traceback (most recent call last):\n  File "r.py", line 1, in f\n    f()\n{}\n'
    text = trace.format("KeyError: 'a'") + "\nDuring handling:\n\n" + trace.format("ValueError: two\nlines: of it")
    assert raised_in_python(text) == "ValueError: two"
    assert raised_in_python("no traceback: at all") == ""
