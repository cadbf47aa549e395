"""An adapter over confluent-kafka: the admin client, partitions, the development broker."""
