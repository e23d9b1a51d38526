"""What one line of a trainer's output says: a row of metrics, a progress bar, or a banner. Nothing is evaluated.

A line is a piece between line feeds, carriage returns and backspaces, since a whole run may be one physical line.
"""

from __future__ import annotations

import json
import math
import re
from functools import lru_cache
from typing import Any

from harness.metrics.jsonl import STEP_KEYS, row_metrics
from harness.metrics.stdout_bars import NUMBER, PLAIN_BAR, bars_in, keras_bar, plain_bar
from harness.metrics.stdout_said import MAX_EPOCH, Banner, EpochLine, Row, Said

MAX_TEXT = 16 << 10
"""Longer lines are looked at only where they are JSON or begin with a dict: prose has no such rows."""
MAX_DICT = 64 << 10
_COUNT = r"[1-9]\d{0,2}(?:,\d{3}){1,6}|\d{1,18}"
"""A number of steps, maybe with its thousands parted."""
_PARTED = r"[-+]?[1-9]\d{0,2}(?:(?:,\d{3}){1,12}\.\d{1,40}|(?:,\d{3}){2,12})"
"""A number that can only have its thousands parted: `1,234` may as well have a decimal comma."""
_NOT_CUT = r"(?!\.?\d{0,40},\d(?!(?:\d?|\d{3,18})\]))"
"""A number does not end where a comma and digits go on, but in a list like `[1,2]`."""
_ANSI = re.compile(r"\x1b\[[0-9;?]{0,40}[A-Za-z]")
_DICT_PAIR = re.compile(
    rf"""(['"])([^'"\n]{{1,200}})\1\s{{0,9}}:\s{{0,9}}(?:[A-Za-z_][\w.]{{0,30}}\()?(['"]?)({NUMBER})\3\)?\s{{0,9}}(?=[,}}])"""
)
_DICT_OWNER = re.compile(r"([A-Za-z_]\w{0,60})\s?=\s?$")
MAX_OWNER = 64
"""Characters that it may take."""
_STATS_NAME = re.compile(r"(?i)(stats|metrics|logs?|losses)$")
_TEXT_PAIR = re.compile(
    r"(?<![\w./-])(?:((?i:train|training|val|valid|validation|eval|test))[ ]+)?([A-Za-z][\w./@]{0,99})"
    r"(?:\s?=\s{0,20}|:\s{1,20}|(?<=(?i:loss))\s{1,4}|(?<=(?i:ppl))\s{1,4}|(?<=(?i:acc))\s{1,4})"
    rf"({_PARTED}|{NUMBER})(?![\w.:/-]){_NOT_CUT}(\s?%)?"
)
_DEEPSPEED = re.compile(r"\bstep=(\d{1,18}), skipped=\d{1,18}, lr=\[([-+.eE\d, ]{1,400})\]")
"""DeepSpeed's own line: the rate of each parameter group."""
_STEP = re.compile(
    r"(?i)(?<![\w/.-])(?:global[_ ]?step|steps?|iterations?|iter|updates?)\s{0,9}[=:#]?\s{0,9}\[?\s{0,9}"
    rf"({_COUNT})(?:\s{{0,4}}/\s{{0,4}}({_COUNT}))?(?![\w.])(?!-\w){_NOT_CUT}"
)
_EPOCH = re.compile(
    r"(?i)(?<![\w/.-])epochs?\s{0,9}[=:#]?\s{0,9}\[?\s{0,9}"
    r"([1-9]\d{0,2}(?:,\d{3}){1,2}(?![\d\]])|\d{1,9}(?:\.\d{1,20})?)"
    rf"{_NOT_CUT}(?:\s{{0,4}}/\s{{0,4}}([1-9]\d{{0,2}}(?:,\d{{3}}){{1,2}}(?!\d)|\d{{1,9}}){_NOT_CUT})?(?!-\w)"
)
_LIKE_A_METRIC = re.compile(
    r"(?i)loss|acc|reward|grad|(^|_)lr$|learning_rate|ppl|perplex|err|mae|mse|f1|auc|bleu|rouge|(^|_)kl|entropy|score|nll"
    r"|wer$|cer$"
)
_LOSS = re.compile(r"(?i)loss|nll")
"""In percent it is a share; an accuracy is counted in percent by whoever prints it so."""
_ALL_PAIRS = re.compile(r"^(?:[\w./@-]{1,100}=\S{1,100}(?:[\s,]{1,20}|$)){2,100}$")
_NOT_METRICS = frozenset({"epoch", "epochs", "step", "steps", "iter", "iters", "iteration", "global_step", "update"})
_BANNERS = {
    "total": re.compile(r"Total optimization steps = ([\d,]{1,24})"),
    "epochs": re.compile(r"Num Epochs = ([\d,]{1,24})"),
    "examples": re.compile(r"Num examples = ([\d,]{1,24})"),
    "batch": re.compile(r"Total train batch size[^=]{0,80} = ([\d,]{1,24})"),
    "resumed_at": re.compile(r"Continuing training from global step ([\d,]{1,24})"),
}


def read_line(raw: bytes) -> list[Said]:
    """What a line says, in its order; mostly nothing."""
    start = raw.find(b"{")
    if start >= 0:
        head = _text(raw[max(0, start - 2000) : start])
        if _is_anothers(head):
            raw = _without_dict(raw, start)
        else:
            row = _dict_row(raw, start, head)
            if row is not None:
                return [row]
    if len(raw) > MAX_TEXT:
        return []
    if b"%|" in raw or b"it/s" in raw:
        plain = PLAIN_BAR.fullmatch(raw)
        if plain is not None:
            return [plain_bar(*plain.groups())]
        return list(bars_in(_text(raw)))
    if b"/step" in raw or (b"/" in raw and (b"ETA" in raw or b"loss:" in raw)):
        bar = keras_bar(_text(raw))
        if bar is not None:
            return [bar]
    low = raw.lower()
    if b"step" in low or b"epoch" in low or b"iter" in low or b"***" in raw or b"num ex" in low or b"batch size" in low:
        return _prose(_text(raw))
    return []


def _text(raw: bytes) -> str:
    return _ANSI.sub("", raw.decode("utf-8", "replace"))


def _is_anothers(head: str) -> bool:
    """Whether a dict behind it has a name that is none of metrics: `config={...}`, `rollout_completion={...}`."""
    owner = _DICT_OWNER.search(head[-MAX_OWNER:]) if "=" in head[-2:] else None
    return owner is not None and not _STATS_NAME.search(owner[1])


def _without_dict(raw: bytes, start: int) -> bytes:
    """The words of a line around a dict: the texts in it may be those of samples."""
    end = raw.rfind(b"}")
    is_quoted = raw[start + 1 : start + 20].lstrip()[:1] in (b"'", b'"')
    return raw[:start] + b"{}" + raw[end + 1 :] if is_quoted and end > start else raw


@lru_cache(maxsize=256)
def ends_in_anothers(head: bytes) -> bool:
    """As read_line tells it of a line with a quoted dict behind these bytes, MAX_OWNER at most."""
    return _is_anothers(_text(head))


def _dict_row(raw: bytes, start: int, head: str) -> Row | None:
    end = raw.rfind(b"}")
    if end <= start + 2 or len(raw) > 1 << 20:
        return None
    body = raw[start : end + 1].decode("utf-8", "replace")
    first = body[1:20].lstrip()[:1]
    if first == '"':
        row = _json_row(body)
        if row is not None:
            return row
    if first not in ("'", '"') or len(body) > MAX_DICT:
        return None
    values, texts = {}, {}
    for _, key, quote, text in _DICT_PAIR.findall(body):
        values[key] = float(text)
        texts[key] = (text, bool(quote))
    return _placed(values, texts, head)


def _json_row(body: str) -> Row | None:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    found = row_metrics(document)
    if found is not None:
        return Row(values=found[2], step=found[0], wall_time=found[1]) if found[2] else None
    if "epoch" not in document:
        return None
    without = row_metrics({**document, "step": 0})
    values = without[2] if without is not None else {}
    return _placed(values, {"epoch": (str(document["epoch"]), isinstance(document["epoch"], str))}, "")


def _placed(values: dict[str, float], texts: dict[str, tuple[str, bool]], head: str) -> Row | None:
    """A row needs a step or an epoch, its own or in the words before it."""
    step: int | None = None
    for key in STEP_KEYS:
        value = values.pop(key, None)
        if step is None and value is not None and value.is_integer() and abs(value) < 1e18:
            step = int(value)
    if step is None and (before := _STEP.search(head)):
        step = int(_plain(before[1]))
    epoch = values.get("epoch")
    if epoch is not None and not 0 <= epoch < MAX_EPOCH:
        epoch = None
    if not values or (step is None and (epoch is None or len(values) < 2)):
        return None
    text, quoted = texts.get("epoch", ("", False))
    return Row(values=values, step=step, epoch=epoch, epoch_slack=slack_of(text, quoted=quoted) if epoch else 0.0)


def slack_of(text: str, *, quoted: bool) -> float:
    """Half of what a printed epoch was rounded to: two decimals (Transformers 4), four significant digits (5, quoted);
    older ones print it in full."""
    value = abs(float(text)) if text else 0.0
    if quoted:
        return 0.5 * 10.0 ** (math.floor(math.log10(value)) - 3) if value else 0.5e-4
    decimals = len(text.partition(".")[2]) if "e" not in text.lower() else 12
    return 0.5 * 10.0 ** -max(2, decimals)


def _rates(text: str) -> dict[str, float]:
    """The one rate of all parameter groups as `lr`, different ones by their group's number."""
    try:
        rates = [float(item) for item in text.split(",")]
    except ValueError:
        return {}
    return {"lr": rates[0]} if len(set(rates)) == 1 else {f"lr/{number}": rate for number, rate in enumerate(rates)}


def _plain(text: str) -> str:
    """Digits without what parts their thousands."""
    return text.replace(",", "")


def _count_of(match: re.Match[str] | None, group: int) -> int | None:
    return int(_plain(match[group])) if match and match[group] else None


def _prose(text: str) -> list[Said]:
    banner = _banner(text)
    if banner is not None:
        return [banner]
    epoch, step = _EPOCH.search(text), _STEP.search(text)
    if epoch is None and step is None:
        return []
    if ", skipped=" in text and (engine := _DEEPSPEED.search(text)):
        return [Row(values=_rates(engine[2]), step=int(engine[1]), is_text=True)]
    named = re.search(r"(?:^|\s)metric=(\S{1,100}) value=(\S{1,40})", text) if "metric=" in text else None
    pairs: dict[str, float] = {}
    if named and re.fullmatch(NUMBER, named[2]):
        pairs[named[1]] = float(named[2])
    elif " stage=" not in text:
        for phase, name, value, percent in _TEXT_PAIR.findall(text):
            tag = name.lower() if name[:1].isupper() and name[1:].islower() else name
            if tag.lower() not in _NOT_METRICS:
                share = 100 if percent and _LOSS.search(tag) else 1
                pairs[f"{phase.lower()}_{tag}" if phase else tag] = float(_plain(value)) / share
    if pairs and (named or any(map(_LIKE_A_METRIC.search, pairs)) or _ALL_PAIRS.match(text.strip())):
        return [
            Row(
                values=pairs, step=_count_of(step, 1), step_total=_count_of(step, 2),
                epoch=float(_plain(epoch[1])) if epoch else None, num_epochs=_count_of(epoch, 2), is_text=True,
            )
        ]
    if step and step[2]:
        return [
            Row(values={}, step=_count_of(step, 1), step_total=_count_of(step, 2),
                epoch=float(_plain(epoch[1])) if epoch else None, num_epochs=_count_of(epoch, 2), is_text=True)
        ]
    alone = "/" in text and re.fullmatch(r"(?i)\s{0,9}epoch\s\[?(\d{1,9})\s?/\s?(\d{1,9})\]?:?\s{0,99}", text)
    return [EpochLine(epoch=int(alone[1]), num_epochs=int(alone[2]))] if alone else []


def _banner(text: str) -> Banner | None:
    if "***** Running " in text:
        return Banner(key="start" if "Running training" in text else "stop")
    if " = " not in text and "Continuing training" not in text:
        return None
    for key, pattern in _BANNERS.items():
        match = pattern.search(text)
        if match:
            digits: Any = match[1].replace(",", "")
            return Banner(key=key, value=int(digits)) if digits else None
    return None
