"""``mmcore bench``: how fast a checkpoint answers on this machine."""
