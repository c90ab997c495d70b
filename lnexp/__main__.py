"""`python -m lnexp` is the console command `lnexp`."""

import sys

from lnexp.cli import main

if __name__ == "__main__":
    sys.exit(main())
