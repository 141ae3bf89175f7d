"""One file an operation: torch reference, Triton kernel, launcher, side by side."""
