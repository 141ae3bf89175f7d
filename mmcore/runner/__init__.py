"""Executes a scheduler's decisions on a device."""
