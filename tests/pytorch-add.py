"""W1 under the name the test plan gives it; `python -m nvshare.workloads w1` is the same."""

import sys

from nvshare.workloads.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["w1", *sys.argv[1:]]))
