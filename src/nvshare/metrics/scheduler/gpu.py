"""What NVML reports about GPUs."""

from __future__ import annotations

from nvshare.metrics.rows import FIXED, GPU, NO_ZEROS, Rows

row = Rows()
NVML_UP = row("nvshare_nvml_up", (), "1 if NVML answers, else 0.", "nvml", FIXED)
GPU_INFO = row(
    "nvshare_gpu_info", (*GPU, "gpu_name"), "1 for each GPU that NVML reports.", "nvml", FIXED, note=NO_ZEROS
)
GPU_SIMULATED = row("nvshare_gpu_simulated", GPU, "1 if the GPU is simulated, else 0.", "nvml")
GPU_MEMORY_TOTAL = row("nvshare_gpu_memory_total_bytes", GPU, "Memory of the GPU.", "nvml", FIXED)
GPU_MEMORY_USED = row(
    "nvshare_gpu_memory_used_bytes", GPU, "Memory of the GPU in use by any process.", "nvml", FIXED
)
GPU_MEMORY_FREE = row("nvshare_gpu_memory_free_bytes", GPU, "Memory of the GPU that is free.", "nvml", FIXED)
GPU_UTILIZATION = row(
    "nvshare_gpu_utilization_ratio", GPU, "Fraction of the time in which a kernel ran, 0 to 1.", "nvml", FIXED
)
GPU_MEMORY_UTILIZATION = row(
    "nvshare_gpu_memory_utilization_ratio",
    GPU,
    "Fraction of the time in which memory was read or written, 0 to 1.",
    "nvml",
    FIXED,
)
GPU_PROCESSES = row("nvshare_gpu_process_count", GPU, "Processes that compute on the GPU.", "nvml", FIXED)
GPU_TEMPERATURE = row("nvshare_gpu_temperature_celsius", GPU, "Temperature of the GPU.", "nvml")
GPU_POWER = row("nvshare_gpu_power_watts", GPU, "Power that the GPU draws now.", "nvml")
GPU_ENERGY = row("nvshare_gpu_energy_joules_total", GPU, "Energy that the GPU has used.", "nvml")
GPU_SM_CLOCK = row("nvshare_gpu_sm_clock_hertz", GPU, "Clock of the multiprocessors.", "nvml")
GPU_MEMORY_CLOCK = row("nvshare_gpu_memory_clock_hertz", GPU, "Clock of the memory.", "nvml")
GPU_ECC_CORRECTED = row(
    "nvshare_gpu_ecc_corrected_errors_total", GPU, "Memory errors that were corrected.", "nvml"
)
GPU_ECC_UNCORRECTED = row(
    "nvshare_gpu_ecc_uncorrected_errors_total", GPU, "Memory errors that could not be corrected.", "nvml"
)
GPU_XIDS = row("nvshare_gpu_xid_errors_total", GPU, "XID events since the daemon started.", "nvml")
GPU_LAST_XID = row("nvshare_gpu_last_xid", GPU, "Number of the last XID event, 0 if there was none.", "nvml")
