"""Decisions: which tokens, which blocks, which items, in which order. Pure Python."""
