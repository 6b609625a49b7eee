"""How every change is made: decide under the lock, land the unit, serve the waiting calls, hold the reply's promise."""
