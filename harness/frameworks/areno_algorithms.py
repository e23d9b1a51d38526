"""What each `--algo` of AReno is, as data: what it needs, writes and must show.

`python -m harness.frameworks.areno_algorithms REFERENCES_DIR` writes references/algorithm-matrix.md from it; a test
holds the page to the table.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.record.files import write_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """One `--algo`: what it needs, what it writes, and what must move in it."""

    kind: str
    """sft, dpo, rollout or other."""
    losses: tuple[str, ...]
    """Names of its losses below `train/`."""
    rows: str = ""
    """What a row of its dataset holds after the loader."""
    needs: tuple[str, ...] = ()
    """Settings without which AReno does not start, beside checkpoint and dataset."""
    reward_model: bool = False
    """Whether a reward model may stand for the reward function."""
    signals: tuple[str, ...] = ()
    """Tags of which one must be above 0 at some update."""
    responses: tuple[str, ...] = ()
    """Tags of the response tokens of an update, in order of preference; one must be above 0."""
    margins: tuple[str, ...] = ()
    """Tags that move away from where they begin once the model learns a preference."""
    preference_losses: tuple[str, ...] = ()
    """Losses that stay at ln 2 while no preference is learnt (sigmoid loss)."""
    ratios: tuple[str, ...] = ()
    """Tags of the policy's ratio to the one that sampled: 1 at the first update, which is on-policy."""
    agreements: tuple[str, ...] = ()
    """Tags of how far the log-probabilities of sampling and training are apart: near 0 at the first update."""
    roles: tuple[str, ...] = ("policy",)
    """Models that take part."""
    warmup: str = ""
    """The setting that keeps the policy still for so many steps."""
    default_warmup: int = 0


_POLICY_LOSSES = ("loss", "total_loss", "policy_loss")
_ADVANTAGES = ("rollout/advantages_std",)
_LENGTHS = ("train/response_len", "rollout/response_len_mean")
_RATIO, _AGREE = ("train/ratio_mean",), ("train/logp_abs_diff_mean",)
_ROLLOUT_ROWS = "`prompt` (or `messages`), and what the reward reads"
ALGORITHMS = {
    "sft": Algorithm(
        kind="sft", losses=("loss", "sft_loss"), rows="`prompt` and `response`, or `tokens` and `prompt_mask`",
        needs=("dataset_loader_fn",), responses=("train/sft_target_tokens", "rollout/response_len_mean")),
    "dpo": Algorithm(
        kind="dpo", losses=("loss", "total_loss", "dpo_loss"), rows="`prompt`, `chosen` and `rejected`",
        responses=("train/dpo_response_len",), margins=("train/dpo_margin", "train/dpo_accuracy"),
        preference_losses=("train/dpo_loss",), roles=("policy", "reference")),
    "gspo": Algorithm(
        kind="rollout", losses=_POLICY_LOSSES, rows=_ROLLOUT_ROWS, needs=("reward_fn_path",), signals=_ADVANTAGES,
        responses=_LENGTHS, ratios=_RATIO, agreements=_AGREE),
    "grpo": Algorithm(
        kind="rollout", losses=_POLICY_LOSSES, rows=_ROLLOUT_ROWS, needs=("reward_fn_path",), signals=_ADVANTAGES,
        responses=_LENGTHS, ratios=_RATIO, agreements=_AGREE),
    "ppo": Algorithm(
        kind="rollout", losses=(*_POLICY_LOSSES, "kl_loss"), rows=_ROLLOUT_ROWS, needs=("reward_fn_path",),
        reward_model=True, signals=_ADVANTAGES, responses=_LENGTHS[1:], ratios=_RATIO, agreements=("train/ppo_kl",),
        roles=("actor", "reference", "critic", "reward (a model, where there is no function)"),
        warmup="--critic-warmup-steps", default_warmup=20),
}
OTHER_ALGORITHM = Algorithm(kind="other", losses=("loss", "[a-z_]+_loss"))


def render() -> str:
    """The page references/algorithm-matrix.md."""
    lines = ["# AReno's algorithms", "",
             "What each `--algo` needs, what its checks read, and which of it decides. Tags are those of AReno's event "
             "files. An update is a step with `train/*` scalars; it is effective with `train/grad_norm` and `train/lr` "
             "above 0. With `--agent-fn` a rollout algorithm is agentic: its samples are transcripts, whose order is "
             "checked, and the run fails where no trajectory is kept.", "",
             "| algorithm | kind | models | needs beside `--ckpt` and `--dataset-path` | a row holds |",
             "| --- | --- | --- | --- | --- |"]
    for name, rule in ALGORITHMS.items():
        needs = ", ".join(f"`--{need.replace('_', '-')}`" for need in rule.needs) or "nothing"
        needs += " or `--hp reward_ckpt=REF`" if rule.reward_model else ""
        lines.append(f"| {name} | {rule.kind} | {', '.join(rule.roles)} | {needs} | {rule.rows} |")
    lines += ["", "## What must be seen", "",
              "| algorithm | losses, finite | above 0 at some update | updates begin |", "| --- | --- | --- | --- |"]
    for name, rule in ALGORITHMS.items():
        losses = ", ".join(f"`train/{loss}`" for loss in rule.losses)
        first = f"`{rule.responses[0]}`" if rule.responses else "-"
        above = ", ".join((first, *(f"`{tag}`" for tag in rule.signals)))
        begin = f"after `{rule.warmup}` (AReno's default {rule.default_warmup})" if rule.warmup else "at the first step"
        lines.append(f"| {name} | {losses} | {above} | {begin} |")
    lines += ["", "## Advice", "", "Looked at and told as findings; none of it changes a decision.", "",
              "| algorithm | near its start value at the first update | moves once something is learnt |",
              "| --- | --- | --- |"]
    for name, rule in ALGORITHMS.items():
        start = [f"`{tag}` near 1" for tag in rule.ratios] + [f"`{tag}` near 0" for tag in rule.agreements]
        moves = [f"`{tag}`" for tag in rule.margins]
        moves += [f"`{tag}` away from ln 2, from the second effective update on" for tag in rule.preference_losses]
        lines.append(f"| {name} | {', '.join(start) or '-'} | {', '.join(moves) or '-'} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_text(Path(sys.argv[1]) / "algorithm-matrix.md", render())
