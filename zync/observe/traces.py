"""Opens spans of OpenTelemetry around the work. Off, and without any import, unless the environment says where to.

The variables are OpenTelemetry's own. In a program that has set up OpenTelemetry itself, spans go where that says.
"""

import logging
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING

from zync.errors import ZyncError

if TYPE_CHECKING:
    from opentelemetry import trace

log = logging.getLogger(__name__)

Value = str | int | float | bool | Sequence[str]


class Span:
    """A piece of work, as far as it is known; while traces are off, nothing."""

    def __init__(self, span: "trace.Span | None" = None) -> None:
        self._span = span

    def set(self, **values: Value | None) -> None:
        """Sets attributes `zync.<name>`; None is left out."""
        if self._span is None:
            return
        for name, value in values.items():
            if value is not None:
                self._span.set_attribute(f"zync.{name}", value)

    def fail(self, error: BaseException) -> None:
        """Marks the span as failed. It names the error by code and class: a message may quote values and addresses."""
        if self._span is None:
            return
        from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415 - is there only when traces are on

        self._span.set_attribute("error.type", type(error).__name__)
        self._span.set_status(Status(StatusCode.ERROR, error_name(error)))


_OFF = Span()


def error_name(error: BaseException) -> str:
    """Names an error by its code and class, without its message."""
    return f"{error.code} {type(error).__name__}" if isinstance(error, ZyncError) else type(error).__name__


@contextmanager
def span(name: str, **values: Value | None) -> Iterator[Span]:
    """Opens a span, which is a child of the one that this thread has open.

    Args:
        name: Its name.
        **values: Its first attributes, as of `Span.set`.
    """
    tracer = _tracer()
    if tracer is None:
        yield _OFF
        return
    with tracer.start_as_current_span(name, record_exception=False, set_status_on_exception=False) as opened:
        current = Span(opened)
        current.set(**values)
        try:
            yield current
        except BaseException as error:
            current.fail(error)
            raise


def _tracer() -> "trace.Tracer | None":
    """Returns the tracer of the program that zync runs in, or else zync's own; None if there is neither."""
    api = sys.modules.get("opentelemetry.trace")
    if api:
        with suppress(Exception):  # OTEL_PYTHON_TRACER_PROVIDER names none, or another thread is importing the module
            if not isinstance(provider := api.get_tracer_provider(), api.ProxyTracerProvider):
                tracer: trace.Tracer = provider.get_tracer("zync")
                return tracer
    return _own_tracer()


@cache
def _own_tracer() -> "trace.Tracer | None":
    """Returns the tracer that the environment's variables ask for; None if they ask for none, or it cannot be had."""
    if not _are_asked_for():
        return None
    try:
        from zync.observe.otlp import make_tracer  # noqa: PLC0415 - OpenTelemetry is optional, and takes 0.3 s

        return make_tracer()
    except ImportError:
        log.warning(
            "OTEL_ variables ask for traces, which need the extra: pip install 'zync[traces]'; going on without traces"
        )
    except Exception as error:  # noqa: BLE001 - a wrong value of any variable: the work does not depend on it
        log.warning("going on without traces, as OTEL_ variables are wrong: %s", error)
    return None


def _are_asked_for() -> bool:
    values = os.environ.get
    if values("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    if exporter := values("OTEL_TRACES_EXPORTER", "").strip():
        return exporter != "none"
    return bool(values("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") or values("OTEL_EXPORTER_OTLP_ENDPOINT"))
