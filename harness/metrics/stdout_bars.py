"""Progress bars in a line of output: those of tqdm, rich and Keras that may be the training's."""

from __future__ import annotations

import re

from harness.metrics.stdout_said import Bar

NUMBER = (
    r"[-+]?(?:\d{1,40}(?:\.\d{0,40})?(?:[eE][-+]?\d{1,40})?|\.\d{1,40}(?:[eE][-+]?\d{1,40})?"
    r"|(?i:nan|inf(?:inity)?))"
)
"""As programs print it."""
_TQDM = re.compile(
    r"(?<!\d)\d{1,3}%\|[^|\r\n]{0,400}\|\s{0,9}(\d{1,18})/(\d{1,18})\s{1,4}"
    r"\[[\d:\?]{1,20}<[^,\]]{0,40},\s{0,9}(\?|[\d.]{1,20})\s?([A-Za-z]{1,20})/([A-Za-z]{1,20})[^\]]{0,2000}\]?"
)
PLAIN_BAR = re.compile(
    rb"\s{0,9}\d{1,3}%\|[^|]{0,400}\|\s{0,9}(\d{1,18})/([1-9]\d{0,17}) "
    rb"\[[\d:]{1,20}<[\d:?]{1,20},\s{0,9}(\d{1,15}(?:\.\d{1,15})?)(it/s|s/it)\]\s{0,9}"
)
"""tqdm's bar without a description, as Transformers draws it."""
_RICH = re.compile(
    r"(?i)^\s{0,20}epoch (\d{1,9})(?:/(-?\d{1,9}))?\s{1,9}[━╸╺─\s]{1,400}(\d{1,18})/(\d{1,18})\s"
    r"[\d:]{1,20} • [-\d:]{1,20} ([\d.]{1,20})\s?it/s"
)
_KERAS = re.compile(
    r"^\s{0,9}(\d{1,18})/(\d{1,18})\s(?:\[[=>.]{0,60}\]|━{1,80})?\s{0,4}(?:-\s)?(?:ETA:\s)?[\d:hms]{1,20}"
    r"(?:\s(?:-\s)?([\d.]{1,20})(us|µs|ms|s)/(?:step|epoch|sample))?(?=\s|$)(.*)"
)
_KERAS_PAIR = re.compile(rf"- ([A-Za-z][\w/. ]{{0,99}}): ({NUMBER})(?=\s|$)")
_KERAS_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
_UNITS = frozenset({"it", "step", "steps", "batch", "batches", "ba", "iter", "iters", "update", "updates"})
_TRAINS = re.compile(r"(?i)train|epoch|step|iter|fit|progress|^\s*$|^\W*\d")
_TRAINS_NOT = re.compile(r"(?i)eval|valid|test|sanity|predict|load|download|tokeni|map|generat|writing|saving|filter")
_DESCRIPTION_EPOCH = re.compile(r"(?i)epoch\s{0,4}:?\s{0,4}\[?(\d{1,9})(?:\s{0,2}/\s{0,2}(\d{1,9}))?")


def bars_in(text: str) -> list[Bar]:
    """Those of a line, in its order."""
    rich = _RICH.search(text)
    if rich:
        epoch, last, done, total, rate = rich.groups()
        num = int(last) + 1 if last and int(last) >= 0 else None
        return [
            Bar(done=int(done), total=int(total), rate=_rate(rate, "it", "s"), epoch=int(epoch), num_epochs=num,
                from_zero=True, named=True)
        ]
    found, position = [], 0
    for match in _TQDM.finditer(text):
        description = text[position : match.start()].strip().rstrip(":").strip()
        position = match.end()
        done, total, rate, upper, lower = match.groups()
        unit = lower if upper == "s" and lower != "s" else upper
        is_ours = unit in _UNITS and int(total) > 0
        if not is_ours or _TRAINS_NOT.search(description) or not _TRAINS.search(description):
            continue
        epoch = _DESCRIPTION_EPOCH.search(description)
        found.append(
            Bar(
                done=int(done), total=int(total), rate=_rate(rate, upper, lower),
                epoch=int(epoch[1]) if epoch else None,
                num_epochs=int(epoch[2]) if epoch and epoch[2] else None,
                counts_epochs=re.fullmatch(r"(?i)epochs?", description) is not None,
                from_zero="v_num" in match[0], named=bool(description),
            )
        )
    return found


def plain_bar(done: bytes, total: bytes, pace: bytes, unit: bytes) -> Bar:
    """By the groups of PLAIN_BAR."""
    return Bar(done=int(done), total=int(total), rate=pace_of(pace, unit))


def pace_of(pace: bytes, unit: bytes) -> float | None:
    """Steps per second; see _rate."""
    value = float(pace)
    return value if unit == b"it/s" else (1 / value if value else None)


def _rate(text: str, upper: str, lower: str) -> float | None:
    """tqdm turns the rate over below one a second: 2.50s/it is 0.4 it/s."""
    try:
        value = float(text)
    except ValueError:
        return None
    if upper == "s" and lower != "s":
        return 1 / value if value else None
    return value


def keras_bar(text: str) -> Bar | None:
    """Of a line of Keras."""
    match = _KERAS.match(text)
    if match is None or int(match[2]) == 0:
        return None
    done, total, pace, unit, rest = match.groups()
    seconds = float(pace) * _KERAS_SECONDS[unit] if pace and re.fullmatch(r"\d+(\.\d+)?", pace) else 0.0
    values = {name.replace(" ", "_"): float(value) for name, value in _KERAS_PAIR.findall(rest)}
    if not values and not seconds:
        return None
    return Bar(
        done=int(done), total=int(total), rate=1 / seconds if seconds else None,
        values=values if done == total else {}, is_keras=True,
    )
