"""`python -m netsim COMMAND`."""

import sys

from netsim.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
