"""W2 under the name the test plan gives it; `python -m nvshare.workloads w2` is the same."""

import sys

from nvshare.workloads.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["w2", *sys.argv[1:]]))
