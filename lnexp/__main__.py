"""`python -m lnexp` is the console command `lnexp`."""

from lnexp.cli import main

if __name__ == "__main__":
    main()
