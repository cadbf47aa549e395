"""Delta tables without Spark: paths, log, data files, locks. An adapter over delta-rs and Arrow."""
