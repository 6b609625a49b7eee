"""Import the data of a Redis into a new store."""
