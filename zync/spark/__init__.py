"""An adapter over PySpark: session, settings, DataFrames, errors, and the JVM behind them."""
