"""`tidelog queue schedule`: jobs that are put again and again."""
