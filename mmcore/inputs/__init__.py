"""Prompts and media become prepared requests: on the CPU, off the step loop, without torch."""
