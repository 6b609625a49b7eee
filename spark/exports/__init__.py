"""Exports: the tables of a snapshot as files, whole or as what changed since an earlier export."""
