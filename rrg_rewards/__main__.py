"""``python -m rrg_rewards``: the command line."""

import sys

from rrg_rewards.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
