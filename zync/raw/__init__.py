"""The table `raw`: every record that was taken from Kafka, verbatim, numbered by `seqno`."""
