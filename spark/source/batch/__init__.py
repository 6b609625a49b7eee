"""Batch reads: the tables of snapshots."""
