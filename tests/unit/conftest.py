"""Nothing here starts a JVM: a test that needs one belongs beside those that share theirs."""

import pytest


@pytest.fixture(autouse=True)
def without_java(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has whatever looks for a Java find none."""
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
