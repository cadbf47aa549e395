"""The formats of messages that have a schema: of a row's columns the schema, and what makes bytes of a row's JSON."""
