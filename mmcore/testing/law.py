"""A law: a plain function that raises where an adapter breaks it, and what it is tried on.

    @law(needs=("measure_counts_rows",), ask=asks)
    def chunks_change_nothing(subject: Subject, ask: Ask) -> None:
        ...

Each keyword names a parameter and says, for a subject, which values to generate for it. A law without any is
tried once. A law *rests on* others: where one of those is broken, it is not run, since it would only repeat
what they found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hypothesis.strategies import SearchStrategy

if TYPE_CHECKING:
    from mmcore.testing.subject import Subject

Strategies = Mapping[str, Callable[["Subject"], SearchStrategy[Any]]]


@dataclass(frozen=True, slots=True)
class Law:
    """One promise of the contract. ``cost`` scales how many examples a profile spends on it."""

    name: str
    check: Callable[..., None]
    about: str
    """What is promised, in one sentence."""
    needs: tuple[str, ...] = ()
    cost: float = 1.0
    given: Strategies = field(default_factory=dict)
    applies: Callable[[Subject], bool] = lambda subject: True
    """Families to which it says something; others hold it by saying nothing."""

    @property
    def page(self) -> str:
        """Where one reads why it exists and how it is usually broken."""
        return f"docs/laws.md#{self.name.replace('_', '-')}"


def grounds(law: Law, laws: Sequence[Law]) -> list[Law]:
    """Of ``laws``, in order, all that it rests on, directly or not."""
    names = set(law.needs)
    for other in reversed(laws):
        if other.name in names:
            names |= set(other.needs)
    return [other for other in laws if other.name in names]


def law(
    *,
    needs: tuple[str, ...] = (),
    cost: float = 1.0,
    applies: Callable[[Subject], bool] = lambda subject: True,
    **given: Callable[[Subject], SearchStrategy[Any]],
) -> Callable[[Callable[..., None]], Law]:
    """Make a law of a function; its name is the law's, its docstring's first line what it promises."""

    def wrap(check: Callable[..., None]) -> Law:
        about = (check.__doc__ or "").strip().splitlines()[0]
        return Law(check.__name__, check, about, needs, cost, given, applies)

    return wrap
