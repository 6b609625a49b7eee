"""The baselines that tidelog is measured beside. Each module says what its store promises and what it does not."""
