"""A plan together with how the arrays of its calls lie."""

from __future__ import annotations

from dataclasses import replace

from autotune.errors import ContextError
from autotune.runtime.arrange import Arrangement, refuse_overlap, span_bytes
from autotune.runtime.arrays import View
from autotune.runtime.plan import Plan


class Bound:
    """Launches for arrays that lie as three that were checked: only their addresses may differ.

    Attributes:
        plan: None where the output has no elements.
    """

    __slots__ = ("_is_swapped", "_repeats", "_spans", "_steps_bytes", "_views", "plan")

    def __init__(
        self, plan: Plan | None, arrangement: Arrangement, views: tuple[View, View, View]
    ) -> None:
        self.plan = plan
        self._is_swapped = arrangement.is_swapped
        self._repeats = arrangement.repeats
        self._steps_bytes = arrangement.steps_bytes
        self._views = views
        self._spans = tuple(span_bytes(view) for view in views)

    def run(
        self, a: int, b: int, out: int, alpha: float, beta: float, stream: int, context: int
    ) -> None:
        """Enqueues the product of the arrays at three addresses.

        Args:
            context: Number of the context that is current.

        Raises:
            OverlapError: the output shares elements with an input.
            ContextError: an array that has elements lies nowhere.
            CaptureError, DriverError: as `Plan.run`.
        """
        if self.plan is None:
            return
        span_a, span_b, span_out = self._spans
        if (out < a + span_a and a < out + span_out) or (out < b + span_b and b < out + span_out):
            self._look_closely(a, b, out)
        if not (out and (a or not span_a) and (b or not span_b)):
            self._refuse_nowhere(a, b, out)
        first, second = (b, a) if self._is_swapped else (a, b)
        if self._repeats == 1:
            self.plan.run(context, stream, (first, second, out, alpha, beta))
            return
        step_first, step_second, step_out = self._steps_bytes
        for turn in range(self._repeats):
            values = (
                first + turn * step_first,
                second + turn * step_second,
                out + turn * step_out,
                alpha,
                beta,
            )
            self.plan.run(context, stream, values)

    def _at(self, a: int, b: int, out: int) -> tuple[View, ...]:
        return tuple(
            replace(view, address=address)
            for view, address in zip(self._views, (a, b, out), strict=True)
        )

    def _look_closely(self, a: int, b: int, out: int) -> None:
        *inputs, output = self._at(a, b, out)
        refuse_overlap(output, tuple(inputs))

    def _refuse_nowhere(self, a: int, b: int, out: int) -> None:
        for view in self._at(a, b, out):
            if not view.address and all(view.shape):
                raise ContextError(view.name, "lies nowhere: its memory was freed")
