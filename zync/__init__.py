"""zync lands the transactions of Kafka topics in a lake whole, exactly once."""
