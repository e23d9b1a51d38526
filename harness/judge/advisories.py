"""What may be worth a look and decides nothing: findings about policies and preferences that their numbers suggest."""

from __future__ import annotations

import math
from typing import Any

from harness.checkpoints.function import USAGE
from harness.judge.checks_eval import EVAL_FLAG, check_eval_agrees, open_evaluation
from harness.judge.checks_rollouts import tags_of
from harness.judge.checks_saving import reloads_of
from harness.judge.observe import Observation
from harness.judge.rates import idle_steps, rests
from harness.judge.thresholds import threshold
from harness.record.store import Point, TagSummary
from harness.record.vocabulary import CheckStatus

LN_2 = math.log(2)


def advisories(seen: Observation) -> list[dict[str, Any]]:
    """Findings of severity low or medium, without their ids."""
    if seen.facts is None or seen.record.store is None:
        return []
    found = [_ratio(seen), _agreement(seen), _preference(seen), _margin(seen), _skipped(seen), _cut(seen),
             _doubted(seen) or _unused(seen), _rate_ended(seen), _evaluates_otherwise(seen)]
    return [item for item in found if item is not None]


def _first(seen: Observation, tag: TagSummary) -> Point | None:
    """The first update's point: sampled by the policy that is trained, so on-policy."""
    assert seen.record.store is not None
    return next(iter(seen.record.store.iter_series(tag.tag, run=tag.run)), None)


def _ratio(seen: Observation) -> dict[str, Any] | None:
    assert seen.facts is not None
    limit = threshold(seen, "on_policy_ratio")
    for tag in tags_of(seen, seen.facts.ratio_tags):
        point = _first(seen, tag)
        if point is not None and math.isfinite(point.value) and abs(point.value - 1) > limit:
            return _finding("the first update is not on-policy", f"{tag.tag} is {point.value:g} at step {point.step}, "
                            f"further than {limit:g} from 1, although the policy that sampled is the one trained",
                            "compare the backends and dtypes of sampling and training; look at stale rollouts")
    return None


def _agreement(seen: Observation) -> dict[str, Any] | None:
    assert seen.facts is not None
    limit = threshold(seen, "logprob_difference")
    for tag in tags_of(seen, seen.facts.agreement_tags):
        point = _first(seen, tag)
        if point is not None and math.isfinite(point.value) and abs(point.value) > limit:
            return _finding("sampling and training disagree on log-probabilities",
                            f"{tag.tag} is {point.value:g} at step {point.step}, the first update; limit {limit:g}",
                            "compare attention backends, dtypes and sampling temperature of the two")
    return None


def _preference(seen: Observation) -> dict[str, Any] | None:
    """From the second effective update on: at the first one policy and reference are the same model."""
    assert seen.facts is not None and seen.record.store is not None
    if (seen.updates.effective or 0) < 2:
        return None
    limit = threshold(seen, "ln_2")
    for tag in tags_of(seen, seen.facts.preference_loss_tags):
        later = list(seen.record.store.iter_series(tag.tag, run=tag.run))[1:]
        if later and all(abs(point.value - LN_2) <= limit for point in later):
            return _finding("the preference loss stays at ln 2", f"{tag.tag} is {LN_2:.6f} at every update",
                            "check that chosen and rejected differ, the reference model, and the learning rate")
    return None


def _margin(seen: Observation) -> dict[str, Any] | None:
    assert seen.facts is not None
    logged = tags_of(seen, seen.facts.margin_tags)
    if not logged or (seen.updates.effective or 0) < 2 or any(tag.min_finite != tag.max_finite for tag in logged):
        return None
    names = ", ".join(tag.tag for tag in logged)
    return _finding("no preference moved", f"{names} never changed", "check the pairs, their order and the beta")


def _skipped(seen: Observation) -> dict[str, Any] | None:
    assert seen.facts is not None
    skipped = max((tag.max_finite or 0.0 for tag in tags_of(seen, seen.facts.skipped_tags)), default=0.0)
    if not skipped:
        return None
    return _finding("rows were left out as too long", f"{skipped:g} rows so far", severity="low",
                    fix="raise the token limit of prompts, or see that what is left is what you mean to train on")


def _cut(seen: Observation) -> dict[str, Any] | None:
    """Trajectories that the context limit ended, where some played to their end."""
    cuts = seen.record.fact("log-end", "cuts") or {}
    if not cuts.get("cut") or cuts["all_cut"] == cuts["rollouts"]:
        return None
    return _finding("trajectories were cut at the context limit",
                    f"{cuts['cut']} of {cuts['kept']} that were trained on lack their later turns, as the output says",
                    "give the agent a longer context or shorter turns")


def _evaluates_otherwise(seen: Observation) -> dict[str, Any] | None:
    """The program's own evaluation of what it saved, which may be made otherwise than in the run."""
    observed = open_evaluation(seen)
    if not observed:
        return None
    return _finding("the program's own evaluation of what it saved is not the logged one", f"{observed}; no other "
                    "checkpoint shows whether the two can be compared", f"evaluate it by {USAGE}, or keep two "
                    "checkpoints that were evaluated")


def _unused(seen: Observation) -> dict[str, Any] | None:
    """What was loaded and not used: as tensors alone, since the code of its model is not in it, or by its own class
    with nothing to show that it is the model that was evaluated, although the program could evaluate it."""
    modes = {str(entry.get("path")): entry.get("status") for entry in seen.record.every("own-evaluation")}
    can_evaluate = [path for path, status in modes.items() if status == "not-asked"]
    more = (f", or {EVAL_FLAG}, which runs the program once more, in its own evaluation mode (it may write outside its "
            "output directory too)") if can_evaluate else ""
    unused = [str(item.get("path")) for item in reloads_of(seen)
              if item.get("status") == "ok" and item.get("forward_ok") is None and not item.get("function")
              and "ok" not in (modes.get(str(item.get("path"))), modes.get(str(item.get("of"))))]
    if not unused:
        if not can_evaluate or check_eval_agrees(seen).status is CheckStatus.PASSED:
            return None
        return _finding("nothing shows that the reloaded model is the one that was evaluated", f"{can_evaluate[0]}: it "
                        "was loaded, and not evaluated", f"give {USAGE}, which uses it as you would{more}",
                        severity="low")
    return _finding("no forward pass was made with the reloaded model", f"{', '.join(unused[:3])}: its tensors were "
                    "read, and the code of its model is not in it", f"give {USAGE}, which uses it as you would{more}",
                    severity="low")


def _doubted(seen: Observation) -> dict[str, Any] | None:
    """What a class of the program that was guessed says of the checkpoint."""
    doubts = [f"{item.get('path')}: {doubt}" for item in reloads_of(seen) for doubt in item.get("doubts") or ()]
    if not doubts:
        return None
    return _finding("what was saved may not be all of the model", f"{'; '.join(doubts[:3])}; which class it is of and "
                    "its input were guessed", f"if that is not meant, see what the program saves; give {USAGE}, which "
                    "uses it as you would")


def _rate_ended(seen: Observation) -> dict[str, Any] | None:
    """The learning rate reached 0 long before the run's end: its schedule counted fewer steps than were made."""
    fix = ("give the schedule the run's own number of steps (num_training_steps, T_max, total_iters, lr_decay_steps), "
           "counted in updates as the optimizer makes them")
    rest = rests(seen)
    if rest is not None:
        what = f"{rest.tags} is exactly 0 from step {rest.since} to {rest.last}, {rest.share:.0%} of what was logged"
        return _finding("the learning rate was 0 for the last part of the run",
                        f"{what}: the schedule's total of steps ended by step {rest.since}, and nothing was learnt",
                        fix)
    idle = idle_steps(seen) if not seen.lr else None
    if idle is not None:
        return _finding("the learning rate was 0 at a large part of the steps",
                        f"{idle[0]} of {idle[1]} applied steps had a rate of 0 in every parameter group", fix)
    return None


def _finding(title: str, description: str, fix: str, *, severity: str = "medium") -> dict[str, Any]:
    return {"severity": severity, "title": title, "description": description, "fix": fix}
