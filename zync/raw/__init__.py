"""The table `raw`: every record consumed from Kafka, verbatim, numbered by `seqno`."""
