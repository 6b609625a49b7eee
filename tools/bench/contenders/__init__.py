"""What takes part in the races of the bench: tidelog in its forms, and the interface of a peer."""
