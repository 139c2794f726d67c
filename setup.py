"""With NVSHARE_COMPILE=1 the scheduling core is compiled by mypyc; without, the same code is plain Python.

Plain is the default, so that what a developer edits is what runs. Compiled is several times faster
(`make bench` shows both) and made for installations: NVSHARE_COMPILE=1 pip install --no-build-isolation .
"""

import os
from pathlib import Path

from setuptools import setup

extensions = []
if os.environ.get("NVSHARE_COMPILE") == "1":
    from mypyc.build import mypycify

    core = sorted(str(path) for path in Path("src/nvshare/core").glob("*.py") if path.name != "__init__.py")
    extensions = mypycify([*core, "--strict"], opt_level="3")

setup(ext_modules=extensions)
