"""``python -m nvshare`` is the same as ``nvshare``."""

from nvshare.cli import main

main()
