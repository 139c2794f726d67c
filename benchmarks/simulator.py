"""How much faster than real time the simulator is, on one core, and whether its memory stays flat.

32 backlogged limited tenants on 8 GPUs, the preset ``fleet``.
"""

from __future__ import annotations

import argparse
import resource
import time
from dataclasses import replace

from nvshare.sim.scenario import SECOND_NS
from nvshare.sim.scenario_file import load
from nvshare.sim.world import World


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, default=0.1, help="how long to simulate (default: 0.1)")
    hours = parser.parse_args().hours
    world = World(replace(load("fleet"), duration_ns=round(hours * 3600 * SECOND_NS)), seed=1)
    steps = 20
    started = time.process_time()
    sizes = []
    for step in range(1, steps + 1):
        world.run_until(round(hours * 3600 * SECOND_NS * step / steps))
        sizes.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        if hours >= 1:
            print(f"  {hours * step / steps:5.1f} h simulated, {sizes[-1] / 1024:.0f} MiB", flush=True)
    cpu_seconds = time.process_time() - started
    print(f"simulator, 32 tenants on 8 GPUs: {hours * 3600 / cpu_seconds:.0f}x real time on one core")
    print(f"memory: {sizes[1] / 1024:.1f} MiB after a tenth, {sizes[-1] / 1024:.1f} MiB at the end")


if __name__ == "__main__":
    main()
