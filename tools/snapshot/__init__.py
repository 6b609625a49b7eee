"""`tidelog snapshot`: make, check, restore and delete snapshots."""
