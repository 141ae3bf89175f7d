"""Ready-made parts for adapters: what several families share, as data. No torch.

A part reads the hub's usual field and tensor names, so that a family's adapter says only what is its own.
"""
