"""Early stopping on an evaluation metric: pure, so that a live run and a replay decide alike.

An evaluation improves when it is better than the best so far by more than min_delta. The best moves only then,
so that a slow gain counts once it has added up (the rule of Lightning's EarlyStopping: `monitor_op(current -
min_delta, best)`). A value that is not finite never improves. The run stops at the evaluation that makes
`patience` of them in a row without an improvement.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

Direction = Literal["min", "max"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LOWER_IS_BETTER = _words(
    "loss losses error errors perplexity ppl wer cer mer ter mae mse rmse mape smape msle rmsle nll bpb bpc"
    " crossentropy logloss fid eer"
)
_HIGHER_IS_BETTER = _words(
    "accuracy accuracies acc f1 fscore auc auroc auprc bleu sacrebleu chrf meteor rouge rougel rougelsum precision"
    " precisions recall recalls reward rewards rew map r2 iou miou dice ndcg mrr psnr ssim bertscore"
)
_PAIRS: dict[tuple[str, str], Direction] = {
    ("cross", "entropy"): "min", ("error", "rate"): "min", ("success", "rate"): "max", ("win", "rate"): "max",
    ("exact", "match"): "max", ("reward", "margin"): "max", ("reward", "margins"): "max",
    ("rewards", "margin"): "max", ("rewards", "margins"): "max", ("average", "precision"): "max",
}
_ONLY_ALONE = frozenset({"map", "r2"})
"""Words that mean a metric only where nothing but a phase stands before them: a feature map is none."""
_QUALIFIERS = _words("mean avg average macro micro weighted epoch step score sum ema l lsum")
"""What may follow a metric's name without changing its direction; a deviation or a ratio would."""
_NEGATIONS = _words("neg negative minus inverse inv non no")
_EVALUATION = _words("eval evaluation val valid validation test dev")
_TRAINING = _words("train training")
_WORDS = re.compile(r"[^0-9A-Za-z]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_AT = re.compile(r"@[0-9.:]+")


_PHASE_WORDS = _EVALUATION | _words("train training")
"""Behind the metric in tags such as `Loss/val`, which PyTorch's own tutorials use."""


def direction_of(metric: str) -> Direction | None:
    """Which way a metric improves, where its name leaves no doubt; None where it has to be asked for.

    The last word decides: `eval_lossless_ratio` is no loss, `loss_scale` and `rewards_std` are none either.
    """
    words = [word for word in _WORDS.split(_AT.sub("", metric)) if word]
    while words and (words[-1].lower() in (_QUALIFIERS | _PHASE_WORDS) or words[-1].isdigit()):
        words.pop()
    if not words or _NEGATIONS & {word.lower() for word in words}:
        return None
    return _of_words([word.lower() for word in words]) or _of_words(
        [part.lower() for word in words for part in _CAMEL.split(word)]
    )


def _of_words(words: list[str]) -> Direction | None:
    last = words[-1] if words[-1] in _ONLY_ALONE else words[-1].rstrip("0123456789") if words[-1] != "f1" else "f1"
    if last in _ONLY_ALONE and any(word not in _EVALUATION | _TRAINING for word in words[:-1]):
        return None
    if last in _LOWER_IS_BETTER:
        return "min"
    if last in _HIGHER_IS_BETTER:
        return "max"
    return _PAIRS.get((words[-2], last)) if len(words) > 1 else None


def same_metric(asked: str, tag: str) -> bool:
    """Whether a logged tag is the metric that was asked for.

    The spellings of an evaluation meet (`eval_loss`, `eval/loss`, `val_loss`, `validation/epoch_loss`); a name
    without a phase meets its evaluation (`loss` and `eval_loss`), and itself. A training tag meets only itself.
    `tag` may carry its run directory in front, since some loggers tell the phase by it alone.
    """
    return _fit(asked, tag) > 0


def find_metric(asked: str, tags: Iterable[str]) -> str | None:
    """The tag that means `asked`: as it is written, else in another spelling; None where there is none.

    For a name without a phase an evaluation comes first: `loss` is `eval_loss` where both are logged.
    """
    fits = [(_fit(asked, tag), tag) for tag in tags]
    best = max((fit for fit, _ in fits), default=0)
    return min((tag for fit, tag in fits if fit == best), default=None) if best else None


def is_evaluation(tag: str) -> bool:
    """Whether the name itself says that it is an evaluation's."""
    return _split(tag)[0] == "eval"


def _fit(asked: str, tag: str) -> int:
    """How well a tag answers to a name; 0: not at all."""
    phase, name, first = _split(asked)
    found_phase, found_name, found_first = _split(tag)
    if name != found_name:
        return 0
    is_spelled_so = asked == tag
    if phase == "":
        return {"eval": 3, "": 2}.get(found_phase, 0) + (found_first != "test") if found_phase != "train" else 0
    if phase != found_phase and not (phase == "eval" and is_spelled_so):
        return 0
    return 1 + 4 * is_spelled_so + 2 * (first == found_first) + (found_first != "test")


def _split(name: str) -> tuple[str, str, str]:
    """(phase "eval", "train" or "", the name without it, the phase's first word)."""
    words = [word for word in _WORDS.split(name.lower()) if word]
    at = next((i for i, word in enumerate(words[:-1]) if word in _EVALUATION | _TRAINING), None)
    if at is not None and "/" not in name and at > 0:
        at = None
    first = words[at] if at is not None else ""
    rest = words[at + 1 :] if at is not None else words
    if rest[:1] == ["epoch"] and len(rest) > 1:
        rest = rest[1:]
    elif rest[-1:] == ["epoch"] and len(rest) > 1:
        rest = rest[:-1]
    phase = "" if at is None else "eval" if first in _EVALUATION else "train"
    return phase, "_".join(rest), first


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The evaluation after which a run is stopped. Indices count evaluations from 0, steps are the trainer's."""

    stop_index: int
    stop_step: int
    best_index: int | None
    """None where no evaluation was finite."""
    best_step: int | None
    best_value: float | None

    @property
    def never_improved(self) -> bool:
        """Whether the first evaluation stayed the best: training made nothing better."""
        return not self.best_index


class EarlyStopping:
    """Takes one evaluation after another; see the module's docstring for the rule."""

    def __init__(self, metric: str, patience: int, mode: Direction, min_delta: float = 0.0) -> None:
        """`min_delta`: absolute, in the metric's own unit. Raises ValueError for what cannot be meant."""
        if patience < 1:
            raise ValueError(f"early stopping with a patience of {patience}: give 1 or more evaluations")
        if not (math.isfinite(min_delta) and min_delta >= 0):
            raise ValueError(f"early stopping with a min_delta of {min_delta}: give 0 or more")
        if mode not in ("min", "max"):
            raise ValueError(f"early stopping in mode {mode!r}: give min or max")
        self.metric = metric
        self.patience = patience
        self.mode: Direction = mode
        self.min_delta = min_delta
        self.decision: Decision | None = None
        """Set once, by the evaluation that used the patience up."""
        self.num_evaluations = 0
        self.num_waited = 0
        """Evaluations in a row without an improvement."""
        self.best_index: int | None = None
        self.best_step: int | None = None
        self.best_value: float | None = None

    def observe(self, step: int, value: float) -> Decision | None:
        """One evaluation; the decision once the patience is used up. What comes after it changes nothing."""
        if self.decision is not None:
            return self.decision
        index, self.num_evaluations = self.num_evaluations, self.num_evaluations + 1
        if self._improves(value):
            self.best_index, self.best_step, self.best_value = index, step, value
            self.num_waited = 0
            return None
        self.num_waited += 1
        if self.num_waited >= self.patience:
            self.decision = Decision(
                stop_index=index, stop_step=step, best_index=self.best_index, best_step=self.best_step,
                best_value=self.best_value,
            )
        return self.decision

    def _improves(self, value: float) -> bool:
        """Compared as decimals: a gain of exactly min_delta is none, whatever binary rounding makes of it."""
        if not math.isfinite(value):
            return False
        if self.best_value is None:
            return True
        gain = Decimal(repr(float(value))) - Decimal(repr(float(self.best_value)))
        return (-gain if self.mode == "min" else gain) > Decimal(repr(float(self.min_delta)))

    def line(self) -> str:
        """The line for the terminal, once the decision is made."""
        assert self.decision is not None
        best = (
            f"best: {self.decision.best_value:.6g} at step {self.decision.best_step}"
            if self.decision.best_value is not None
            else "no finite value"
        )
        return (
            f"Early stopping triggered at step {self.decision.stop_step} — {self.metric} did not improve for "
            f"{self.patience} evals ({best})"
        )
