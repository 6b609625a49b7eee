"""The contenders in the races of the bench: the forms of tidelog, and the interface of a peer."""
