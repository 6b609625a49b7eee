"""Streaming reads: the log of a store, as entries and as events."""
