"""Redis's dump format, RDB: streams and strings as facts, and back. Bytes in, facts out; no file, no clock."""
