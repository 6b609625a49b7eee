"""Dump files of Redis: written from a store, and read into one."""
