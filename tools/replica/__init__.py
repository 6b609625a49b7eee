"""`tidelog replica`: leaders and followers."""
