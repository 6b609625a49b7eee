"""The parts of the bench that run in separate processes: servers, clients, and stores that are reopened."""
