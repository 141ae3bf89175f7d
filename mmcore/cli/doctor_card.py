"""Each GPU: do the kernels compile for it and compute right, and can a step be captured?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

from mmcore.cli.finding import Finding

if TYPE_CHECKING:
    from mmcore.bench.kernel_check import KernelFault


def check_cards() -> Iterator[Finding]:
    """Nothing where there is no GPU, or no torch, which is told elsewhere."""
    try:
        torch: Any = import_module("torch")
    except Exception:
        return
    for index in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        with torch.cuda.device(index):
            yield from check_card(torch.device("cuda", index))


def check_card(device: Any) -> Iterator[Finding]:
    from mmcore.bench.kernel_check import check_kernels, graph_fault

    yield from kernel_findings(str(device), check_kernels(device))
    yield graph_finding(str(device), graph_fault(device))


def kernel_findings(device: str, found: Iterable[KernelFault]) -> Iterator[Finding]:
    """One for each kernel with a fault, and one for all that have none."""
    what, well = f"kernels {device}", dict[str, None]()
    broken: dict[str, str] = {}
    for kernel in found:
        if kernel.reason:
            broken.setdefault(kernel.kernel, kernel.reason)
        well[kernel.kernel] = None
    for name, reason in broken.items():
        detail = f"{name} cannot be used: {reason}; without Triton everything runs, slower"
        yield Finding(what, "broken", detail, "pip install -U triton, or export MMCORE_KERNELS=torch")
    right = [name for name in well if name not in broken]
    if right:
        yield Finding(what, "ok", f"compile and compute what torch does: {', '.join(right)}")


def graph_finding(device: str, reason: str) -> Finding:
    """Eager steps do the same work: a warning."""
    if not reason:
        return Finding(f"graphs {device}", "ok", "steps are captured and replayed")
    detail = f"a step cannot be captured ({reason}): decode runs eagerly, several times slower"
    return Finding(f"graphs {device}", "warning", detail)
