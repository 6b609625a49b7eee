"""`tidelog queue`: look into queues, and change them."""
