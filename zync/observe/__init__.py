"""Tells other systems what a process does: spans to OpenTelemetry, run events to OpenLineage. Off by default."""
