"""Early stopping of a live run: each evaluation of the metric is fed once, as its bytes arrive."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from harness.frameworks.base import FrameworkFacts
from harness.metrics.collector import MetricCollector
from harness.record.store import MetricStore
from harness.spec import RunSpec
from harness.watch.early_stopping import Decision, EarlyStopping, is_evaluation
from harness.watch.progress import fits
from harness.watch.replay import find_series, resolve_mode

Key = tuple[str, str]


class EarlyStopWatch:
    """Watches the metric of --early-stop-metric; without one it never decides."""

    def __init__(self, spec: RunSpec, facts: FrameworkFacts, metrics: MetricCollector, store: MetricStore) -> None:
        self.spec = spec
        self.facts = facts
        self.metrics = metrics
        self.store = store
        self.key: Key | None = None
        """(run directory, tag) that the metric was found under."""
        self.decision: Decision | None = None
        self._stopping: EarlyStopping | None = None
        self._fed: tuple[Key, int] | None = None

    def check(self) -> str | None:
        """The line that announces the stop, once; None while there is none."""
        if self.spec.early_stop_metric is None or self.decision is not None:
            return None
        key = self._find(self.spec.early_stop_metric)
        if key is None or self._fed == (key, self.metrics.latest[key].step):
            return None
        self.key, self._fed = key, (key, self.metrics.latest[key].step)
        self._stopping = EarlyStopping(
            metric=self.spec.early_stop_metric, patience=self.spec.early_stop_patience,
            mode=resolve_mode(self.spec.early_stop_metric, self.spec.early_stop_mode),
            min_delta=self.spec.early_stop_min_delta)
        for point in self.store.series(key[1], run=key[0]):
            self.decision = self._stopping.observe(point.step, point.value)
            if self.decision is not None:
                return self._stopping.line()
        return None

    def _find(self, metric: str) -> Key | None:
        """The evaluation series of the metric; a training series only where exactly that was asked for."""
        keys = [key for key, latest in self.metrics.latest.items() if latest.ownership == "own"]
        found = find_series(metric, self._evaluations(keys)) or [
            key for key in keys if key[1] == metric and metric != "loss"]
        return min(found, default=None)

    def _evaluations(self, keys: Iterable[Key]) -> list[Key]:
        return [key for key in keys if is_evaluation(key[1]) or fits(key[1], self.facts.eval_tags)
                or is_evaluation(f"{key[0].rpartition('/')[2]}/x")]

    def facts_json(self) -> dict[str, Any]:
        """For the journal: what was watched and what came of it."""
        seen, decision = self._stopping, self.decision
        return {
            "metric": self.spec.early_stop_metric, "patience": self.spec.early_stop_patience,
            "tag": self.key[1] if self.key else None, "run": self.key[0] if self.key else None,
            "evaluations": seen.num_evaluations if seen else 0,
            "triggered": decision is not None, "triggered_at_step": decision.stop_step if decision else None,
            "never_improved": decision.never_improved if decision else False,
            "best_step": seen.best_step if seen else None, "best_value": seen.best_value if seen else None,
        }
