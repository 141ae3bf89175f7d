"""One file an operation: torch reference, launcher, CPU path. Triton kernels beside it, ``<op>_triton.py``.

``<op>_reference`` is plain torch in the dtype of its inputs, on any device: in float32 it is the truth, in
half precision the yardstick (a kernel may be at most twice as far from the truth as it). ``<op>`` picks the
fastest implementation there is.
"""
