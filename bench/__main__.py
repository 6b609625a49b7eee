"""`python -m bench`, in a clone."""

from bench.command import command

if __name__ == "__main__":
    command(prog_name="python -m bench")
