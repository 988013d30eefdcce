"""One time for many problems: in slices, each to the problem that is expected to gain most from it.

Every problem gets a first slice, those with the fewest trials before the others. Then the next
slice goes to the largest expected gain: half of what the problem's last slice brought, or a tenth
of its distance to the roofline divided by its slices so far, whichever is more; never more than
that distance. At the end the finals of all are held, for which time is kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass

from autotune.analysis.roofline import roofline
from autotune.errors import DeviceError
from autotune.search.events import Report, Status
from autotune.search.session import Session
from autotune.types import Device, Problem

FIRST_SHARE = 0.5
"""Of the time for searching: what goes to the first slices, in equal parts."""
LEAST_SLICE_S = 4.0
"""What a problem needs to try a few dozen configs."""
ROUND_S = 10.0
"""The later slices are half of the first ones, but no shorter than this: long enough that filling
the compilers again does not count."""
HEADROOM_SHARE = 0.1
"""Of the distance to the roofline: what the slice after a fruitless one is expected to gain."""
HURRY = 1.5
"""Times the roofline's time: how fast a kernel is taken to be before any was timed."""

Guard = Callable[[Session, Callable[[], Report | None]], Report | None]
"""Runs a step of a session, and makes a report of what it raises if only this problem is to blame.
"""


@dataclass(slots=True)
class _Entry:
    """A problem of the campaign.

    Attributes:
        status: How its search ended; None while it could go on.
        gain: Share of the time that its last slice saved.
    """

    session: Session
    status: Status | None = None
    report: Report | None = None
    slices: int = 0
    gain: float = 0.0

    @property
    def goes_on(self) -> bool:
        return self.status is None and self.report is None


class Campaign:
    """Spends a time on sessions that share a setting.

    Args:
        total_s: Wall time from now, finals included.
        guard: See `Guard`.
    """

    def __init__(self, sessions: Sequence[Session], total_s: float, guard: Guard) -> None:
        self._ends_at = time.monotonic() + total_s
        self._guard = guard
        self._given = [_Entry(session) for session in sessions]
        self._order = sorted(self._given, key=lambda entry: entry.session.stored_trials())

    def run(self) -> list[Report]:
        """The reports, in the order of the sessions."""
        entries = self._served()
        # What the finals of all take is kept back before any is searched.
        shared_s = self._left_s() - sum(map(self._finals_s, entries))
        first_s = max(LEAST_SLICE_S, FIRST_SHARE * shared_s / max(1, len(entries)))
        with ThreadPoolExecutor(1) as thread:
            for place, entry in enumerate(entries):
                # The next one's points are counted meanwhile; what goes wrong there does so again
                # where it is noticed.
                ahead = [thread.submit(each.session.prepare) for each in entries[place + 1 :][:1]]
                self._slice(entry, first_s, kept=entries[: place + 1])
                wait(ahead)
        while going := [entry for entry in entries if entry.goes_on]:
            spare_s = self._left_s() - sum(map(self._finals_s, entries))
            if spare_s < LEAST_SLICE_S:
                break
            entry = max(going, key=expected_gain)
            self._slice(entry, min(spare_s, max(ROUND_S, first_s / 2)), kept=entries)
        for entry in entries:
            self._conclude(entry)
        return [entry.report for entry in self._given if entry.report is not None]

    def _left_s(self) -> float:
        return self._ends_at - time.monotonic()

    def _served(self) -> list[_Entry]:
        """Those for which there is time enough; the others are refused."""
        served: list[_Entry] = []
        left_s = self._left_s()
        for entry in self._order:
            left_s -= LEAST_SLICE_S + self._finals_s(entry)
            if left_s >= 0:
                served.append(entry)
            else:
                self._refuse(entry)
        return served

    def _refuse(self, entry: _Entry) -> None:
        needed_s = LEAST_SLICE_S + self._finals_s(entry)
        report = entry.session.not_reached(
            f"less than the {needed_s:.0f} s that it needs at least were left of the time for all; "
            "the next run begins with it"
        )
        entry.report = self._guard(entry.session, lambda: report)

    def _slice(self, entry: _Entry, seconds: float, kept: Sequence[_Entry]) -> None:
        """Searches on; `kept` are the problems whose finals must still be possible afterwards."""
        spare_s = self._left_s() - sum(map(self._finals_s, kept))
        if spare_s < LEAST_SLICE_S / 2:
            if not entry.slices:
                self._refuse(entry)
            return
        before = entry.session.best_ns

        def search() -> None:
            # Making the data of a large problem may outlast a slice, and must not begin anew in
            # the next one.
            entry.status = entry.session.advance(min(seconds, spare_s), grace_s=spare_s)

        entry.report = self._guard(entry.session, search)
        after = entry.session.best_ns
        entry.gain = 1 - after / before if before and after else 0.0
        entry.slices += 1

    def _conclude(self, entry: _Entry) -> None:
        if entry.report is None:
            status = entry.status or "truncated"
            entry.report = self._guard(entry.session, lambda: entry.session.conclude(status))

    def _finals_s(self, entry: _Entry) -> float:
        """What a problem's finals will take."""
        if entry.report is not None:
            return 0.0
        session = entry.session
        time_ns = session.best_ns or HURRY * least_ns(session.problem, session.setting.device)
        return session.finals_s(time_ns)


def expected_gain(entry: _Entry) -> float:
    """Share of its time that a problem's next slice is expected to save."""
    session = entry.session
    if session.best_ns is None:
        return HEADROOM_SHARE / max(1, entry.slices)
    headroom = max(0.0, 1 - least_ns(session.problem, session.setting.device) / session.best_ns)
    return min(headroom, max(entry.gain / 2, HEADROOM_SHARE * headroom / max(1, entry.slices)))


def least_ns(problem: Problem, device: Device) -> float:
    """The roofline's time; 0 where the device's clocks are not known."""
    try:
        return roofline(problem, device).time_ns
    except DeviceError:
        return 0.0
