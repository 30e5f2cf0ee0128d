"""`python -m vitplug` is `vitplug`."""

import sys

from vitplug.cli import main

if __name__ == '__main__':
    sys.exit(main())
