"""The way of every change: decide under the lock, land the unit, serve the waiting calls, hold the reply's promise."""
