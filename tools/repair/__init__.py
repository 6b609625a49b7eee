"""`tidelog repair`: see what a damaged store has left, and make a copy of it without the damage."""
