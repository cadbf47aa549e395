"""Topics to deliver to, and transactions over them."""

import uuid

import pytest

from tests.deliver.conftest import row


@pytest.fixture
def names() -> list[str]:
    """Two topics that no other test has."""
    return [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("accounts", "history")]


def transfers(names: list[str], count: int, first: int = 0) -> list[list[tuple[str, str | None, str | None]]]:
    """Transactions of three rows over two topics."""
    accounts, history = names
    return [
        [row(accounts, n % 7, balance=-n), row(accounts, n % 5 + 100, balance=n), row(history, n, delta=n)]
        for n in range(first, first + count)
    ]
