"""The rows of the subject `spark`, a module for each family, and the processes in which they are measured."""
