"""A compiled stand-in for libnvidia-ml.so.1, its GPUs described by a state file; see fake_nvml.c."""
