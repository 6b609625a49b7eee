"""The state: databases of keys, their values and expiries, the calls that wait on keys, and what a checkpoint takes."""
