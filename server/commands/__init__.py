"""The functions that handle the server's own commands. `server/handlers.py` lists them."""
