"""Whether an override took effect: the value asked for beside the value that the trainer says it used."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Any

from harness.judge.model import Check, failed, not_applicable, passed, unproven
from harness.judge.observe import Observation
from harness.judge.received import received
from harness.judge.values import number_of, plain, same, same_value
from harness.record.attempts import attempts
from harness.record.reasons import Reason
from harness.record.token_formats import MASK

LR_KEYS = frozenset({"lr", "learning_rate", "optimizer_lr"})
OPTIMIZERS = "largest rate inside the optimizer"
BEGUN = "rate that the optimizer began with"
STILL_STEPS = 3
"""Applied steps from which on a rate that never changed is called constant, and one that never rose no warm-up."""
DECAYED = 0.9
"""Share of a rate from which on one that then falls may be it after the first step of its schedule."""
RESOLVED_WORDS = frozenset({"auto", "all", "default"})
"""What a trainer replaces by a value of its own."""
SCALED = ("look where the program sets the rate of its optimizer; where it scales the rate by batch or world size on "
          "purpose, ask for the scaled value or give --accept-conditional")
WHOLE_GROUPS = frozenset({
    "args", "config", "hparams", "hyperparameters", "model", "opt", "optim", "optimizer", "params", "solver", "train",
    "trainer", "training",
})
"""First parts of a dotted setting that is the whole run's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One override and what was seen of it."""

    key: str
    asked: str
    used: Any
    """None where nothing tells."""
    source: str
    """What tells the used value."""
    holds: bool | None
    """None where nothing tells."""
    counted: float | None = None
    """The largest rate of the run's optimizers from their first step on, where it is one other than that asked for."""
    is_told: bool = False
    """The trainer's own record tells the value."""
    is_received: bool = False
    """Only the program's own parser tells: `holds` is whether it returned what was asked for."""

    @property
    def word(self) -> str:
        """used, received (by the program's parser, which shows no use), replaced, other or unseen."""
        if self.counted is not None:
            return "replaced"
        if self.holds is None:
            return "replaced" if self.is_received else "unseen"
        return "other" if not self.holds else "received" if self.is_received else "used"


def effects(seen: Observation) -> list[Effect]:
    """Every override of the command beside its effect, in order."""
    told: dict[str, dict[str, Any]] = seen.record.fact("effective-values", "values", {}) or {}
    return [_effect(seen, item, told) for item in seen.record.fact("command", "overrides", []) or []]


def _effect(seen: Observation, item: dict[str, Any], told: dict[str, dict[str, Any]]) -> Effect:
    key, asked = str(item.get("key")), str(item.get("value"))
    setting = _setting(str(item.get("place") or ""))
    found = _find(told, setting) or _find(told, key)
    rates = (name for name in (setting, _plain_name(key)) if name.rpartition(".")[2] in LR_KEYS)
    name = next(rates, "")
    rate = _by_optimizers(seen, _lr_effect(seen, told, key, asked, name), name)
    if found is None:
        return _by_parser(seen, item, rate)
    effect = Effect(key=key, asked=asked, used=found.get("value"), source=str(found.get("source")),
                    holds=_holds(setting or key, asked, found.get("value")), is_told=True)
    return replace(effect, counted=rate.counted) if rate.holds in (None, effect.holds) else rate


def _by_parser(seen: Observation, item: dict[str, Any], effect: Effect) -> Effect:
    """The effect by what the program's parser returned, where nothing tells more."""
    if effect.holds is not None or effect.counted is not None:
        return effect
    found = received(seen.record, item, same_value)
    if found is None:
        return effect
    return replace(effect, used=found.value, source=found.source, holds=found.holds, is_received=True)


def _by_optimizers(seen: Observation, effect: Effect, name: str) -> Effect:
    """The effect beside the rates that the probe saw inside the run's optimizers, which no log can misstate.

    A rate that is another one from the first step on is no proof of a fault: a program may scale it by its batch.
    """
    group = name.rpartition(".")[0].rpartition(".")[2].lower()
    if not name or not seen.probe.rates or (group and group not in WHOLE_GROUPS):
        return effect
    try:
        wanted = float(effect.asked)
    except ValueError:
        return effect
    highest = [high for _, high in seen.probe.rates]
    still = all(low == high for low, high in seen.probe.rates)
    for rates, source in ((highest, OPTIMIZERS), (() if still else seen.probe.rates_begun, BEGUN)):
        near = next((rate for rate in rates if math.isclose(rate, wanted, rel_tol=1e-4)), None)
        if near is not None:
            return replace(effect, used=near, source=source, holds=True) if effect.holds is None else effect
    if seen.probe.steps < STILL_STEPS:
        return effect
    return replace(effect, counted=max(highest)) if still or _began_elsewhere(seen, wanted) else effect


def _began_elsewhere(seen: Observation, wanted: float) -> bool:
    """Whether the rates of all optimizers only fell, from others than the one asked for; a run that goes on from a
    checkpoint is in the midst of its schedule."""
    begun = seen.probe.rates_never_above
    first = next((attempt.first_step for attempt in attempts(seen.record)), None)
    if not begun or (seen.facts and seen.facts.resume_from) or (first or 0) > seen.probe.steps:
        return False
    return not any(wanted * DECAYED <= rate <= wanted for rate in begun)


def _setting(place: str) -> str:
    """`--learning-rate`, `++optim.lr=` or `cfg.yaml:optim.lr` as the trainer's own name of the setting."""
    name = place if place.startswith("-") else place.rpartition(":")[2]
    return _plain_name(name.strip("-+~= "))


def _plain_name(name: str) -> str:
    return name.replace("-", "_")


def _find(told: dict[str, dict[str, Any]], name: str) -> dict[str, Any] | None:
    """The value under this name, else under the dotted names that end in it, where those agree."""
    name = _plain_name(name)
    if not name:
        return None
    named = [value for key, value in told.items() if _plain_name(key) == name]
    ending = named or [value for key, value in told.items() if _ends(_plain_name(key), name)]
    agree = all(same(plain(item.get("value")), plain(ending[0].get("value"))) for item in ending)
    return ending[0] if ending and agree else None


def _ends(key: str, name: str) -> bool:
    """Whether a dotted key ends in this name; an item of a list is only meant by its number."""
    return key.endswith("." + name) and not any(part.isdigit() for part in key[: -len(name)].split("."))


def _lr_effect(seen: Observation, told: dict[str, dict[str, Any]], key: str, asked: str, name: str) -> Effect:
    """A schedule stays at or below the rate asked for; only a constant rate must be equal to it.

    `name`: the setting, dotted where it is; empty where it is no learning rate.
    """
    unknown = Effect(key=key, asked=asked, used=None, source="", holds=None)
    try:
        wanted = float(asked)
    except ValueError:
        return unknown
    if not name:
        return unknown
    found = [Effect(key=key, asked=asked, used=used, source=source, holds=_rate_holds(wanted, used, constant))
             for used, source, constant in _rates(seen, told, name)]
    return min(found, key=lambda effect: (True, None, False).index(effect.holds), default=unknown)


def _rates(seen: Observation, told: dict[str, dict[str, Any]], name: str) -> list[tuple[float, str, bool]]:
    """(largest rate, what tells it, whether it is constant) of the series that may be this setting's.

    A dotted setting has the series named after its group: `critic.lr` is no other's. One series alone is also
    the rate of a group that names no part of the model.
    """
    tags = [tag for tag in seen.lr if tag.max_finite is not None]
    group = name.rpartition(".")[0].rpartition(".")[2].lower()
    if group and (len(tags) > 1 or group not in WHOLE_GROUPS):
        tags = [tag for tag in tags if group in re.split(r"[^a-z0-9]+", _plain_name(tag.tag).lower())]
    rates = [(tag.max_finite, f"largest {tag.tag}", tag.min_finite == tag.max_finite and tag.fresh_points > 1)
             for tag in tags if tag.max_finite is not None]
    if seen.lr or group:
        return rates
    peak = _find(told, f"{name}.peak_logged") or {}
    value = peak.get("value")
    return [(float(value), f"largest in {peak.get('source')}", False)] if isinstance(value, (int, float)) else []


def _rate_holds(wanted: float, used: float, constant: bool) -> bool | None:
    if math.isclose(used, wanted, rel_tol=1e-4):
        return True
    return False if constant or used > wanted * 1.001 else None


def _holds(name: str, asked: str, used: Any) -> bool | None:
    """Whether the values are one; None where the two cannot be compared."""
    if _is_masked(asked) or _is_masked(used):
        return None
    if same_value(asked, used):
        return True
    return None if asked.strip().lower() in RESOLVED_WORDS or _is_share(name, asked, used) else False


def _is_masked(value: Any) -> bool:
    """Secrets: ours, and `<HUB_TOKEN>` as Transformers writes it."""
    return isinstance(value, str) and (MASK in value or re.fullmatch(r"<[A-Z_]+_TOKEN>", value) is not None)


def _is_share(name: str, asked: str, used: Any) -> bool:
    """A share of the run, or of an epoch, of which the trainer notes the whole steps or epochs."""
    if isinstance(used, bool) or not isinstance(used, int) or not name.endswith(("steps", "epochs")):
        return False
    number = number_of(asked)
    if number is None or not math.isfinite(number) or number <= 0 or number.is_integer():
        return False
    return used == math.ceil(number) if name.endswith("epochs") else number < 1 <= used


def check_overrides(seen: Observation) -> Check:
    """No override is contradicted by the value that the trainer used."""
    name, expected = "overrides", "every override in effect"
    found = effects(seen)
    if not found:
        return not_applicable(name, "nothing was overridden")
    for effect in found:
        if effect.holds is False:
            return failed(name, Reason.OVERRIDE_WITHOUT_EFFECT, f"{effect.key}={effect.asked}",
                          f"{effect.used} ({effect.source})", "the trainer used another value")
    for effect in found:
        if effect.counted is not None:
            check = unproven(name, Reason.OVERRIDE_WITHOUT_EFFECT, f"{effect.key}={effect.asked}",
                             f"{effect.counted:g} {_since(seen)}",
                             "the rate inside the optimizer is another one, whatever the log says")
            return replace(check, exact_remedy=SCALED)
    mine = _asked_by_user(seen)
    for effect in found:
        if effect.is_received and effect.holds is None:
            return unproven(name, Reason.OVERRIDE_REPLACED, f"{effect.key}={effect.asked}",
                            f"{effect.used} ({effect.source})", "it was received and replaced before it trained")
        if _is_unseen(effect) and effect.key in mine:
            odd = [str(problem) for problem in seen.record.fact("parsed", "problems", []) or []][:3]
            why = f"nothing that the run left tells the value of {effect.key} that it used"
            observed = "not seen" if effect.used is None else f"{effect.used} ({effect.source})"
            return unproven(name, Reason.OVERRIDE_UNPROVEN, f"{effect.key}={effect.asked}", observed,
                            "; ".join((why, *odd)))
    seen_keys = [effect.key for effect in found if effect.holds]
    if not seen_keys:
        return not_applicable(name, _told(found))
    return passed(name, expected, f"seen: {', '.join(seen_keys)}", _told(found))


def _since(seen: Observation) -> str:
    still = all(low == high for low, high in seen.probe.rates)
    return "at every applied step" if still else "at the first applied step, and never above it"


def _told(found: list[Effect]) -> str:
    """What the effects that hold do not show."""
    unseen = ", ".join(effect.key for effect in found if effect.holds is None)
    only = ", ".join(f"{effect.key} ({effect.source})" for effect in found if effect.is_received)
    texts = (f"nothing tells the value of {unseen}" if unseen else "",
             f"received by the program, which shows no use of it: {only}" if only else "")
    return "; ".join(filter(None, texts))


def _asked_by_user(seen: Observation) -> set[str]:
    """Keys of --hp but those that only change what is written, which is told by what was written."""
    asked = {text.partition("=")[0].strip() for text in seen.record.spec.hp}
    kinds = {str(item.get("key")): item.get("kind") for item in seen.record.fact("command", "overrides", []) or []}
    return {key for key in asked if kinds.get(key) != "observability"}


def _is_unseen(effect: Effect) -> bool:
    """Whether nothing tells that it is in effect; a secret's is never told, and one that a trainer resolves is."""
    return effect.holds is None and effect.counted is None and not effect.is_told and not _is_masked(effect.asked)


def unseen_overrides(seen: Observation) -> list[dict[str, Any]]:
    """A finding for each override of the user that cannot be compared and that no check calls unproven, once something
    was launched: secrets, what a trainer resolved, what only changes what is written."""
    asked = {text.partition("=")[0].strip() for text in seen.record.spec.hp}
    if seen.record.last("attempt-started") is None:
        return []
    mine = _asked_by_user(seen)
    return [{
        "severity": "medium", "title": f"override-effect-unseen: {effect.key}={effect.asked}",
        "description": f"{effect.key} was handed to the program and nothing that the run left can be compared with it",
        "fix": "look at it yourself",
    } for effect in effects(seen) if effect.holds is None and effect.counted is None and not effect.is_received
        and effect.key in asked and not (_is_unseen(effect) and effect.key in mine)]
