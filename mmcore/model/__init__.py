"""One configurable decoder, tower building blocks, weights, sampler."""
