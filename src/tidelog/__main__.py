"""`python -m tidelog`: the command line."""

from tidelog.tools.cli import main

if __name__ == "__main__":
    main()
