"""The preset `debezium`: its connectors' records, when their transactions are complete, and the config that it implies.

See https://debezium.io/documentation/reference/stable (each connector's "transaction metadata").
"""
