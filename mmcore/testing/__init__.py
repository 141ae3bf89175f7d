"""The conformance kit and tiny checkpoints, for authors of adapters. Nothing in the core imports it."""
