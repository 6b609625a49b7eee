"""The server's own commands. Importing this registers them in `server.table`."""
