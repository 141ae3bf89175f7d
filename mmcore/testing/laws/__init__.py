"""All laws, in the order in which they are tried: what others rest on comes first."""

from mmcore.testing.law import Law
from mmcore.testing.laws.rows import measure_counts_rows

LAWS: tuple[Law, ...] = (measure_counts_rows,)
