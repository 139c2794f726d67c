#!/bin/sh
# Installs nvshare into build/venv, with the command vgpu_monitor, and writes a sample of the file that it reads.
# Afterwards: cd build && venv/bin/vgpu_monitor
set -eu
cd "$(dirname "$0")"
mkdir -p build
python3 -m venv build/venv
build/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt .
[ -e build/gpu_allocation.txt ] || echo 2 >build/gpu_allocation.txt
echo "installed: build/venv/bin/vgpu_monitor, build/gpu_allocation.txt; edit the number of parts of a GPU there"
