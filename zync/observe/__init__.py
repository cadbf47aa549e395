"""Tells other systems what a process does: spans to OpenTelemetry. Off by default."""
