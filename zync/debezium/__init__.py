"""The preset `debezium`: parses its connectors' records, detects complete transactions, and expands the config.

See https://debezium.io/documentation/reference/stable (each connector's "transaction metadata").
"""
