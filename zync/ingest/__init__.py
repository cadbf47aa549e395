"""Process 1, `zync sync-from kafka raw`: consume, batch, append to raw."""
