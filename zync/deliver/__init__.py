"""Process 3, `zync sync-to`: delivers staging to Kafka topics and lake tables in whole transactions, exactly once."""
