"""Process 3, `zync sync-to`: staging to Kafka topics and lake tables, whole transactions, each exactly once."""
