"""Consumer groups and their pending entries, in memory and as rows of a checkpoint."""
