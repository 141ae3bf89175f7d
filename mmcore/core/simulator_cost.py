"""What a simulated machine has, and what things cost on it in seconds."""

from __future__ import annotations

from dataclasses import dataclass

from mmcore.core.admission import SchedulerLimits
from mmcore.core.output import SchedulerOutput
from mmcore.request import PreparedItem


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The space and the limits that a simulated scheduler works with."""

    limits: SchedulerLimits
    num_blocks: int
    block_size: int = 16
    encoder_bytes: int = 1 << 30
    enable_reuse: bool = True


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step computes. ``kv_read`` counts the positions that its rows attend to, once a row."""

    tokens: int = 0
    rows: int = 0
    kv_read: int = 0
    encoder_work: int = 0

    @classmethod
    def of(cls, output: SchedulerOutput, encoder_work: int) -> StepWork:
        tokens = output.num_tokens
        return cls(tokens, len(output.row_slots), sum(output.row_starts) + tokens, encoder_work)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Seconds, linear in each quantity. The defaults are of the order of a 7 B model on a large GPU."""

    step: float = 4e-3
    """Of every step that computes something: weights read once, launches."""
    token: float = 2e-5
    row: float = 2e-6
    kv_position: float = 1.3e-8
    encoder_flop: float = 2.5e-15
    preprocess_workers: int = 16
    preprocess_item: float = 4e-3
    preprocess_row: float = 5e-5
    """Of an item, for each row that it becomes."""
    preprocess_timeout: float = 30.0
    """An item that takes a worker longer is given up."""

    def step_seconds(self, work: StepWork) -> float:
        if not work.rows and not work.encoder_work:
            return 0.0
        decoder = self.token * work.tokens + self.row * work.rows + self.kv_position * work.kv_read
        return self.step + decoder + self.encoder_flop * work.encoder_work

    def item_seconds(self, item: PreparedItem) -> float:
        return self.preprocess_item + self.preprocess_row * item.plan.rows
