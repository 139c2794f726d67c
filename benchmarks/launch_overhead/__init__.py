"""What the library costs a launch: instructions, counted by callgrind, and time of a whole workload."""
