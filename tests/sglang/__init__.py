"""A real SGLang on the CPU: what enginetop shows of it against what its own clients counted."""
