"""What a search has proposed so far, and what came of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from autotune.types import Config


class History:
    """Trials in the order in which they ended, and those that have not.

    Attributes:
        times: Of ended trials in ns; None for a failure.
        begun: All of both, in the order in which they were proposed.
        running: Points that were proposed and have given nothing yet.
        seen: All points that must not be proposed again.
    """

    def __init__(
        self, known: Sequence[tuple[Config, float | None]], barred: Iterable[Config]
    ) -> None:
        self.times: dict[Config, float | None] = dict(known)
        self.begun: list[Config] = list(self.times)
        self.running: dict[Config, None] = {}
        self.seen: set[Config] = {*barred, *self.times}

    def begin(self, config: Config) -> None:
        """A point is proposed."""
        self.begun.append(config)
        self.running[config] = None
        self.seen.add(config)

    def end(self, config: Config, time_ns: float | None) -> None:
        """A point has given its time, or failed."""
        self.running.pop(config, None)
        self.times[config] = time_ns

    def leaders(self, count: int, among: Collection[Config] | None = None) -> list[Config]:
        """The fastest points, of all or among these, fastest first; of equal ones the earlier."""
        timed = [
            (time, config)
            for config, time in self.times.items()
            if time is not None and (among is None or config in among)
        ]
        return [config for _, config in sorted(timed, key=lambda pair: pair[0])[:count]]

    @property
    def best_ns(self) -> float | None:
        """Time of the fastest point; None while there is none."""
        return min((time for time in self.times.values() if time is not None), default=None)

    def unseen(self, configs: Iterable[Config]) -> list[Config]:
        """Those that may be proposed, each once."""
        return [config for config in dict.fromkeys(configs) if config not in self.seen]
