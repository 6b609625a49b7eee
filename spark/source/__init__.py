"""The Spark data source: snapshots as tables, the log as a stream, and a sink."""
