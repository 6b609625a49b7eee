"""Writing: rows of a DataFrame become entries of a served store, each exactly once."""
