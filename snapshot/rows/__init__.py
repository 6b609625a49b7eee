"""The file of rows, data.mdb: its format, the checks of its structure, our reader, and LMDB's environment."""
