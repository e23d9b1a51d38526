"""Renders references/anomalies.md: each anomaly with its severity, its rule and what ends it, from the constants.

`python -m harness.watch.anomalies.page REFERENCES_DIR` writes it; a test holds the page to what this renders.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from harness.record.files import write_text
from harness.record.vocabulary import AnomalyType, Severity
from harness.watch.anomalies import board, divergence, gradient, nonfinite, output, stall, throughput


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of one type."""

    type: AnomalyType
    severity: Severity
    begins: str
    ends: str


_STEPS_END = f"{board.STEPS_AFTER} further steps, or the run reaches its target and ends well"
RULES = (
    Rule(type=AnomalyType.NAN_INF, severity=Severity.HIGH,
         begins="a training or evaluation loss is NaN or infinite",
         ends=f"{nonfinite.RECOVERED_AFTER} finite values of that tag in a row"),
    Rule(type=AnomalyType.NAN_INF, severity=Severity.HIGH,
         begins="masked NaN: a gradient norm is not finite and the loss beside it is exactly 0.0; or more than "
                f"{nonfinite.SKIPS_IN_A_ROW} rows in a row are not finite and no loss scaler counted as many skips; or "
                f"the probe counted fewer skips, at a time after the row and {nonfinite.PROBE_LAG_S:g} s later",
         ends=f"{nonfinite.RECOVERED_AFTER} finite values of that tag in a row"),
    Rule(type=AnomalyType.NAN_INF, severity=Severity.MEDIUM,
         begins="the output prints such a loss (`loss=nan`) where none was logged yet; a logged one takes its place",
         ends=f"a finite loss at {board.STEPS_AFTER} later steps"),
    Rule(type=AnomalyType.NAN_INF, severity=Severity.MEDIUM, begins="a learning rate is not finite",
         ends=f"{nonfinite.RECOVERED_AFTER} finite values in a row"),
    Rule(type=AnomalyType.NAN_INF, severity=Severity.LOW,
         begins="a gradient norm is not finite beside a finite loss, as on a step that a loss scaler skips; any other "
                "tag is not finite",
         ends=f"{nonfinite.RECOVERED_AFTER} finite values in a row"),
    Rule(type=AnomalyType.OOM, severity=Severity.HIGH,
         begins="the output tells of exhausted memory: OutOfMemoryError, `CUDA out of memory`, RESOURCE_EXHAUSTED, "
                "CUBLAS_STATUS_ALLOC_FAILED; MemoryError, std::bad_alloc, a kernel's or scheduler's OOM kill",
         ends=_STEPS_END),
    Rule(type=AnomalyType.CRASH, severity=Severity.BLOCKER,
         begins="an attempt ended by itself with a signal or an exit code other than 0",
         ends="another attempt was started"),
    Rule(type=AnomalyType.CRASH, severity=Severity.HIGH,
         begins="the output tells of a CUDA, cuBLAS, cuDNN or NCCL error, a killed loader worker, a failed rank, a "
                "segmentation fault",
         ends=_STEPS_END),
    Rule(type=AnomalyType.STALLED, severity=Severity.HIGH,
         begins=f"no new step for longer than the larger of {stall.INTERVALS:g} x --interval and "
                f"{stall.GAP_FACTOR:g} x the median gap between the looks that saw one ({stall.MIN_GAPS} gaps at "
                "least; "
                f"before that {stall.START_UP_S / 60:g} minutes), while the probe counts none either; output without a "
                "step is no progress; after the target no step is expected",
         ends="a new step, or the run reaches its target and ends well"),
    Rule(type=AnomalyType.CHECKPOINT_FAILURE, severity=Severity.HIGH,
         begins="the output tells that a checkpoint could not be written: no space, quota, permission or I/O error "
                "with "
                "a word of saving in the same traceback or line, or a traceback out of torch.save, safetensors, orbax, "
                "save_pretrained or save_checkpoint",
         ends="a checkpoint that is not damaged was written later"),
    Rule(type=AnomalyType.DIVERGENCE, severity=Severity.MEDIUM,
         begins=f"the level of a training loss (median of {divergence.LEVEL_POINTS} points) lies above its best level "
                "by "
                f"more than {divergence.NOISE_FACTOR:g} x the noise (median distance of neighbouring points), by more "
                f"than {divergence.LOST_SHARE:.0%} of what it had fallen from its start, by more than "
                f"{divergence.BEST_SHARE:.0%} of the best level and by more than {divergence.MIN_RISE:g}; from "
                f"{divergence.MIN_POINTS} points on; never for policy losses",
         ends=f"the rise is below {divergence.BACK_SHARE:.0%} of what was needed"),
    Rule(type=AnomalyType.GRADIENT_EXPLOSION, severity=Severity.MEDIUM,
         begins=f"a gradient norm is above {gradient.RATIO:g} x its median (the last {gradient.MEDIAN_POINTS} points, "
                f"{gradient.MIN_POINTS} at least, not 0) {gradient.RATIO_POINTS} times in a row, or above "
                f"{gradient.SPIKE_RATIO:g} x once; or above {gradient.ABSOLUTE_NORM:g} where the program is known not "
                "to "
                "clip gradients",
         ends=f"{gradient.RATIO_POINTS} norms in a row below {gradient.BACK_RATIO:g} x that median, or below the "
              "bound"),
    Rule(type=AnomalyType.SLOW_THROUGHPUT, severity=Severity.MEDIUM,
         begins=f"tokens or samples per second, where a tag tells them, else steps per second by the writers' clocks, "
                f"below {throughput.DOWN_SHARE:.0%} of the best steady rate (median of {throughput.STEADY_POINTS} "
                f"points) {throughput.SLOW_POINTS} times in a row",
         ends=f"the median rate is above {throughput.BACK_SHARE:.0%} of it again"),
)


def render() -> str:
    """The page."""
    lines = [
        "# Anomalies", "",
        "What the watch looks for while a run goes on. An anomaly never stops a run: it is recorded in journal.jsonl, "
        "told on the terminal and listed in babysit-training.json. Only `--stop-on KIND` lets a kind stop the run, and "
        "never at severity low.", "",
        "An anomaly that is over ends as recovered. One of severity high or blocker that is not makes the decision "
        "CONDITIONAL (`unresolved-anomaly`) where nothing failed. Divergence, gradient explosion and throughput are "
        "advice and never change a decision.", "",
        f"At most {board.MAX_LISTED} anomalies of a type are listed, the rest is counted. For the first non-finite "
        "value "
        f"an incident holds step, metric, rank and the last {board.LAST_POINTS} points of loss, grad_norm and lr. Of "
        "the "
        f"output the quoted line is cut after {output.QUOTED_CHARS} characters.", "",
        "| type | severity | begins | ends |", "| --- | --- | --- | --- |",
    ]
    lines += [f"| `{rule.type.value}` | {rule.severity.value} | {rule.begins} | {rule.ends} |" for rule in RULES]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_text(Path(sys.argv[1]) / "anomalies.md", render())
