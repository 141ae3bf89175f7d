"""A manifest that computes a table when it is imported."""

import time

start = time.process_time()
while time.process_time() - start < 0.08:
    pass
