"""The server's options: their kinds, their table, their current values and the file that sets them."""
