"""``python -m mmcore``."""

import sys

from mmcore.cli import main

if __name__ == "__main__":
    sys.exit(main())
