"""placeholder"""

from __future__ import annotations

from dataclasses import dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    scheduling_mode: str = "auto"
    switch_time_mode: str = "auto"
    switch_time_fixed_ns: int = 60 * SECOND_NS
    switch_time_multiplier: int = 5
    memory_reserve_percent: int = 10
    default_gpu_memory_bytes: int = 16 << 30
    max_runtime_ns: int = 300 * SECOND_NS
    compute_window_ns: int = 2 * SECOND_NS
    drop_timeout_ns: int = 60 * SECOND_NS
    drain_grace_ns: int = 500_000_000
    unlimited_min_percent: int = 5
    overtake_ns: int = 10 * SECOND_NS
