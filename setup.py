"""With NVSHARE_COMPILE=1 what every message passes through is compiled by mypyc: the core, the wire format,
the daemon's connections. Without, the same code is plain Python.

Plain is the default, so that what a developer edits is what runs. Compiled is several times faster
(`make bench` shows both) and made for installations: NVSHARE_COMPILE=1 pip install --no-build-isolation .
"""

import os
from pathlib import Path

from setuptools import setup

NODE_MODULES = ("connection.py", "counters.py", "hub.py", "telling.py")
NOT_COMPILED = ("__init__.py", "document.py")  # the second makes a page of docs

extensions = []
if os.environ.get("NVSHARE_COMPILE") == "1":
    from mypyc.build import mypycify

    modules = [
        path for folder in ("core", "wire") for path in sorted(Path("src/nvshare", folder).glob("*.py"))
    ]
    modules += [Path("src/nvshare/node", name) for name in NODE_MODULES]
    hot = [str(path) for path in modules if path.name not in NOT_COMPILED]
    extensions = mypycify([*hot, "--strict"], opt_level="3")

setup(ext_modules=extensions)
