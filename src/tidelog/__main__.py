"""`python -m tidelog`: the command line."""

from tidelog.tools.start import main

if __name__ == "__main__":
    main()
