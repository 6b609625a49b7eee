"""Brokers, tracing and metrics for other libraries. Each module needs the library that it is named after."""
