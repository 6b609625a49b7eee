"""`tidelog aof`: list, dump, verify, repair and export a log."""
