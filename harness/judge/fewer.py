"""Why a healthy run's optimizer can have applied fewer steps than the number of its last checkpoint says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise

from harness.judge.observe import Observation, counts_steps

_OTHER_FLAG = re.compile(
    r"(?i)(total|max)[-_]?timesteps|^-*timesteps$|env[-_]?steps|^-*(total|train)[-_](frames|tokens|samples|images)|episodes")
_OTHER_TAG = re.compile(r"(?i)ep_rew|episode|env_?steps|timesteps|^rollout/")
"""Flags and series of trainers whose steps are those of an environment, or samples. `--max_train_samples` is none: it
cuts the dataset."""
_SCALED = re.compile(r"(?i)deepspeed|fp16|float16|apex|loss[-_ ]?scale|grad[-_ ]?scale")
"""What scales losses by means that the probe cannot ask how many steps they withheld."""
_RESUMED = re.compile(r"(?i)resum|restor|contin|checkpoint|ckpt|[-_]load([-_=]|$)")


def explains_fewer(seen: Observation, target: int, goals: Iterable[int]) -> bool:
    """Whether something that is known of the run explains that no optimizer applied `target` steps.

    `goals`: the steps that its sources tell, one of which several optimizers together may have applied.
    """
    most = max(seen.probe.counts)
    flags = [word.split("=")[0] for word in _words(seen) if word.startswith("-") or "=" in word]
    if any(map(_OTHER_FLAG.search, flags)) or any(_OTHER_TAG.search(tag.tag) for tag in seen.tags):
        return True
    together = {seen.probe.total, *seen.probe.in_turn}
    return (bool(together & set(goals)) or _began_later(seen, target - most)
            or any(most >= target // factor for factor in _stated_factors(seen))
            or (2 * most >= target and _is_scaled(seen)))


def _words(seen: Observation) -> list[str]:
    return [str(word) for word in seen.record.fact("command", "argv") or []]


def _stated_factors(seen: Observation) -> Iterator[int]:
    """Accumulation as the command states it: `--grad-accum 4`, `gradient_accumulation_steps=4`."""
    words = _words(seen)
    for word, after in pairwise([*words, ""]):
        name, _, value = word.partition("=")
        number = value or after
        if "accum" in name.lower() and number.isdecimal() and int(number) >= 2:
            yield int(number)


def _is_scaled(seen: Observation) -> bool:
    processes = seen.record.fact("probe", "facts", {}) or {}
    wrappers = [name for item in processes.get("processes") or [] for name in (item.get("exchange") or {}).get(
        "wrappers") or []]
    return any(_SCALED.search(name) for name in (*_words(seen), *wrappers, *(tag.tag for tag in seen.tags)))


def _began_later(seen: Observation, start: int) -> bool:
    """Whether the run may have gone on from a step as late as `start`: nothing was logged up to it, and a checkpoint
    or the command speaks for it."""
    first = seen.steps.first if counts_steps(seen) else None
    if first is not None and first <= start:
        return False
    earlier = any(start <= step and (first is None or step < first) for step in seen.weights.steps[:-1])
    stated = (seen.facts is not None and seen.facts.resume_from is not None) or any(
        _RESUMED.search(word) for word in _words(seen) if word.startswith("-") and "dir" not in word)
    return earlier or stated
