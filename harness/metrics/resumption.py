"""A resumed run against the one that was never interrupted: where they part, and what state that points to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from harness.metrics.compare import Difference, compare_series

FINGERPRINT = r"(^|[/_.])batch_(fingerprint|hash|id)$"
COMPARED_TAGS = (FINGERPRINT,)
_LR = re.compile(r"(^|[/_.-])(lr|learning_rate)($|[/_.-])", re.IGNORECASE)
_FINGERPRINT = re.compile(FINGERPRINT, re.IGNORECASE)
_GRAD = re.compile(r"(^|[/_.])(grad|gradient)_norm($|[/_.])", re.IGNORECASE)
Series = Mapping[str, Mapping[int, float]]
MIN_REPLAYED = 2
"""Points that must repeat an earlier part of the run before that is called a replay."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """What the comparison shows."""

    points: int
    tags: tuple[str, ...]
    """Those that both hold after the checkpoint."""
    exact: bool
    rtol: float
    max_relative: float
    last_step: int | None
    """Of the resumed run."""
    expected_last: int | None
    first: Difference | None
    """The first divergent step, None where there is none."""
    tag: str = ""
    """The tag that diverges there."""
    suspected: str = ""
    """scheduler, scheduler-restarted, data-order, data-replayed, rng, optimizer, "data-order or rng", or ""."""


def tells_weights(tag: str) -> bool:
    """Whether a series depends on the weights: a schedule and the order of the data go on in an untrained model too."""
    return not (_LR.search(tag) or _FINGERPRINT.search(tag))


def compare_resumption(expected: Series, actual: Series, at: int, *, rtol: float) -> Resumption:
    """Compare the steps after `at`, the checkpoint's step, in each series that both runs hold."""
    whole = {tag: {step: value for step, value in points.items() if step > at} for tag, points in expected.items()}
    resumed = {tag: {step: value for step, value in points.items() if step > at} for tag, points in actual.items()}
    shared = sorted(tag for tag in whole if whole[tag] and resumed.get(tag))
    found = {tag: compare_series(whole[tag], resumed[tag], rtol=0.0 if _FINGERPRINT.search(tag) else rtol, atol=0.0,
                                 whole=False) for tag in shared}
    parted = {tag: item.first for tag, item in found.items() if item.first is not None}
    first = min(parted.values(), key=lambda item: item.step, default=None)
    at_first = sorted(tag for tag, item in parted.items() if first is not None and item.step == first.step)
    suspected, tag = _suspect(expected, actual, at, parted, at_first) if first else ("", "")
    return Resumption(
        points=sum(item.points for item in found.values()), tags=tuple(shared), rtol=rtol,
        exact=bool(found) and all(item.exact for item in found.values()),
        max_relative=max((item.max_relative for item in found.values()), default=0.0),
        last_step=max((step for points in resumed.values() for step in points), default=None),
        expected_last=max((step for points in whole.values() for step in points), default=None),
        first=parted.get(tag, first), tag=tag, suspected=suspected)


def _suspect(expected: Series, actual: Series, at: int, parted: Mapping[str, Difference],
             at_first: list[str]) -> tuple[str, str]:
    """(state, tag): by which series parts first, and whether it repeats the beginning of the run."""
    batch = next((tag for tag in at_first if _FINGERPRINT.search(tag)), None)
    if batch is not None:
        return "data-replayed" if _repeats(expected[batch], actual[batch], at) else "data-order", batch
    rate = next((tag for tag in at_first if _LR.search(tag)), None)
    if rate is not None:
        return "scheduler-restarted" if _repeats(expected[rate], actual[rate], at) else "scheduler", rate
    loss = next((tag for tag in at_first if not _GRAD.search(tag)), at_first[0])
    compared = min((step for step in actual.get(loss, {}) if step > at), default=None)
    if parted[loss].step == compared:
        fingerprinted = any(_FINGERPRINT.search(tag) for tag in expected)
        return "rng" if fingerprinted else "data-order or rng", loss
    return "optimizer", loss


def _repeats(expected: Mapping[int, float], actual: Mapping[int, float], at: int) -> bool:
    """Whether what follows the checkpoint is what the whole run did from its own start on."""
    steps = sorted(step for step in actual if step > at)
    pairs = [(expected.get(step - at), actual[step]) for step in steps if step - at in expected]
    agreeing = sum(before == after for before, after in pairs)
    return agreeing >= MIN_REPLAYED and agreeing >= 0.8 * len(pairs)
