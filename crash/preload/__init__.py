"""The recorder of other programs: a library that is preloaded into them, and its notes as a trace."""
