"""Encoding of output rows: each module makes a schema of a row's columns, and a function from a row's JSON to bytes."""
