"""What tidelog is measured beside. Each module names what it promises and what it does not."""
