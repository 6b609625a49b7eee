"""`tidelog worker`: processes and threads that call a function with each job of a queue."""
