"""`tidelog queue dead`: jobs that were given up."""
