"""Sends spans by OpenTelemetry's SDK as the environment says; imported only when it asks for traces."""

import os
from collections.abc import Sequence
from importlib.metadata import entry_points, version

from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from zync.errors import UsageError
from zync.log import event
from zync.observe.receiver import Receiver

_GROUP = "opentelemetry_traces_exporter"
"""The entry points by which packages offer exporters, as OpenTelemetry's own automatic configuration finds them."""
_BY_PROTOCOL = {"http/protobuf": "otlp_proto_http", "grpc": "otlp_proto_grpc"}


def make_tracer() -> Tracer:
    """Returns a tracer whose spans go out in batches, from a thread of its own.

    Raises:
        UsageError: The environment names a protocol or an exporter that is not installed.
    """
    receiver = Receiver("the collector of traces", event("traces_away"), event("traces_back"))
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)  # its own would take up to 30 s
    for name in os.environ.get("OTEL_TRACES_EXPORTER", "otlp").split(","):
        provider.add_span_processor(BatchSpanProcessor(_Watched(_exporter(name.strip()), receiver)))
    receiver.close_at_exit(provider.shutdown)
    return provider.get_tracer("zync", version("zync"))


def _resource() -> Resource:
    """Returns the environment's resource; `zync` is the name of a service that the environment does not name."""
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service"):
        return resource.merge(Resource({SERVICE_NAME: "zync"}))
    return resource


def _exporter(name: str) -> SpanExporter:
    """Returns a new exporter of a name of OTEL_TRACES_EXPORTER."""
    protocol = "http/protobuf"
    if name == "otlp":
        protocol = (
            os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL")
            or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
            or protocol
        ).strip()
        name = _BY_PROTOCOL.get(protocol, protocol)
    for entry in entry_points(group=_GROUP, name=name):
        exporter: SpanExporter = entry.load()()
        return exporter
    package = f"opentelemetry-exporter-{name.replace('_', '-')}"
    msg = f"no exporter {name} is installed: pip install {package}, or set OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf"
    raise UsageError(msg)


class _Watched(SpanExporter):
    """An exporter whose failures are logged once, by a line."""

    def __init__(self, exporter: SpanExporter, receiver: Receiver) -> None:
        self._exporter, self._receiver = exporter, receiver

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Exports spans; what fails is lost."""
        try:
            result = self._exporter.export(spans)
        except Exception:  # noqa: BLE001 - exporters raise what they like, and the SDK would log a stack trace for each
            result = SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self._receiver.answered()
        else:
            self._receiver.failed()
        return result

    def shutdown(self) -> None:
        """Ends the exporter."""
        self._exporter.shutdown()

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        """Returns whether the exporter has sent all that it holds."""
        return self._exporter.force_flush(timeout_millis)
