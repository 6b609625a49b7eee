"""Functions that are jobs: `tidelog.tasks`, its decorators, the values of their arguments, and the work on them."""
