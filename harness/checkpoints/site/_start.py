"""What a checkpoint's values say beside a start: the same questions as harness/checkpoints/compare.py asks of
safetensors files, for formats that only a loader reads; and digests for the marks of the optimizer probe.
"""

# mypy: ignore-errors

import hashlib
import re

from _values import values_of

MAX_NAMES = 50
MAX_DIGESTS = 20000
MAX_VALUES, VALUES_OF = 64, 4096
MAX_SAMPLE, LEAST_RELATED, LEAST_SAMPLE, LEAST_SAMPLES, RELATED_SHARE = 65_536, 6.0, 64, 4096, 0.1
"""As harness/checkpoints/likeness.py has them."""
CHUNK = 1 << 20
BUFFERS = re.compile(r"(running_mean|running_var|num_batches_tracked)$|(^|[./])batch_stats[./]|"
                     r"batch_normalization(_\d+)?/vars/[23]$")
"""BatchNorm statistics as torch, Flax and Keras name them: forward passes change them."""
WRAPPERS = ("state_dict", "model_state_dict", "model_state", "model", "module", "_orig_mod", "params", "net", "network",
            "app")
"""Parts at the beginning of a name that say how a model was wrapped."""
REFERENCE = re.compile(r"(^|[._/])(ref|reference|old|teacher|target|tgt|anchor|untrained|init|initial)([._/]|$)", re.I)
"""As harness/checkpoints/marks.py has it."""
FACTOR_TOLERANCE = {"float64": 1e-7, "float32": 1e-5, "float16": 4e-3, "bfloat16": 2e-2}
TYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}


def look(request, answer):
    """Fill `comparison` and `mark_digests` of a checkpoint that loaded; what cannot be compared is a note."""
    wanted = {(kind, tuple(shape)) for kind, shape in request.get("kinds") or ()}
    starts = request.get("starts") or ()
    if not wanted and not starts:
        return
    end = {}
    try:
        for name, value in values_of(request):
            if wanted:
                digest(name, value, wanted, request, answer)
            if starts:
                end[name] = value
    except Exception as error:
        answer.note(f"its values were not compared: {type(error).__name__}: {error}")
        return
    for start in starts:
        try:
            found = compare(dict(values_of({**request, **start})), end)
        except Exception as error:
            answer.note(f"{start['path']} could not be compared: {type(error).__name__}: {error}")
            continue
        if found is not None:
            answer.fields["comparison"] = {**found, "start": start["path"], "start_kind": start["kind"]}
            return
        answer.note(f"{start['path']} has no tensor name in common")


def digest(name, value, wanted, request, answer):
    """[type, shape, SHA-256 of the first bytes, some values] where the probe marked a parameter of this shape."""
    shape, kind = tuple(value.shape), TYPES.get(type_of(value), "")
    listed = answer.fields.setdefault("mark_digests", [])
    alike = sum(row[1] == list(shape) for row in listed) if len(listed) < MAX_DIGESTS else 0
    if not kind or len(listed) >= MAX_DIGESTS or REFERENCE.search(name) or shape not in {one for _, one in wanted}:
        return
    told = hashlib.sha256(first_bytes(value, request["prefix_bytes"])).hexdigest()
    # One more than are compared, so that it is seen that there are too many.
    listed.append([kind, list(shape), told, some_values(value) if alike <= request["max_alike"] else []])


def some_values(value):
    """As harness/checkpoints/likeness.py keeps them, finite."""
    flat = value.detach().reshape(-1) if hasattr(value, "detach") else value.reshape(-1)
    size = min(int(flat.shape[0]), VALUES_OF)
    places = range(size) if size <= MAX_VALUES else [index * size // MAX_VALUES for index in range(MAX_VALUES)]
    values = [float(flat[place]) for place in places]
    return [number if number - number == 0 else 0.0 for number in values]


def first_bytes(value, count):
    """Of a tensor or array, in memory's order."""
    if hasattr(value, "detach"):
        import torch

        flat = value.detach().reshape(-1)[: max(1, count // value.element_size())].contiguous()
        return flat.view(torch.uint8).numpy().tobytes()[:count]
    return value.reshape(-1)[: max(1, count // value.dtype.itemsize)].tobytes()[:count]


def compare(start, end):
    """{kind, compared, changed, changed_names, max_abs_change}; None without a name in common."""
    if not start.keys() & end.keys():
        start, end = ({plain(name): value for name, value in one.items()} for one in (start, end))
    tally = {"changed": [], "buffers": 0, "cast": 0, "resized": 0, "largest": 0.0, "decays": [],
             "elements": 0, "related": 0, "rest": 0.0}
    names = sorted(start.keys() & end.keys())
    for name in names:
        compare_one(name, start[name], end[name], tally)
    if not names:
        return None
    kind = "changed" if tally["changed"] else next(
        (told for told, count in (("buffers-only", tally["buffers"]), ("resize-only", tally["resized"]),
                                  ("cast-only", tally["cast"])) if count), "none")
    if tally["changed"] and is_decay(tally["decays"]):
        kind = "decay-only"
    if tally["changed"] and is_unrelated(tally):
        kind = "unrelated"
    largest = tally["largest"] if tally["changed"] and tally["largest"] != float("inf") else None
    return {"kind": kind, "compared": len(names), "changed": len(tally["changed"]),
            "changed_names": [name[:300] for name in tally["changed"][:MAX_NAMES]], "max_abs_change": largest}


def plain(name):
    """Without the wrappers' parts, and with one separator."""
    parts = [part for part in re.split(r"[./]", name) if part]
    while len(parts) > 1 and parts[0] in WRAPPERS:
        parts = parts[1:]
    return ".".join(parts)


def type_of(value):
    """float32, bfloat16 and so on, without the library's name."""
    return str(value.dtype).rpartition(".")[2]


def compare_one(name, before, after, tally):
    """One tensor, as float64 in chunks; rows that were appended leave the rest where it was."""
    import numpy as np

    first, second = array_of(before), array_of(after)
    same = first.shape == second.shape
    if not same and first.shape[1:] != second.shape[1:]:
        tally["resized"] += 1
        return
    a, b = first.reshape(-1), second.reshape(-1)
    count, differs, largest = min(a.size, b.size), 0, 0.0
    dot = square = end_square = 0.0
    shrinks, is_cast = True, type_of(before) != type_of(after)
    for done in range(0, count, CHUNK):
        x, y = (one[done : done + CHUNK].astype(np.float64) for one in (a[:count], b[:count]))
        unequal = (x != y) & ~(np.isnan(x) & np.isnan(y))
        if is_cast and unequal.any() and rounds_to(x, y, type_of(after)):
            shrinks = False
            continue
        if unequal.any():
            differs += int(unequal.sum())
            with np.errstate(invalid="ignore", over="ignore"):
                most = float(np.abs(y - x)[unequal].max())
            largest = max(largest, most if most == most else float("inf"))
        shrinks = shrinks and bool(np.isfinite(y).all()) and not bool(((np.abs(y) > np.abs(x)) | (x * y < 0)).any())
        if shrinks:
            dot, square, end_square = dot + float(x @ y), square + float(x @ x), end_square + float(y @ y)
    if not differs:
        tally["cast"] += is_cast
        tally["resized"] += not same
    elif BUFFERS.search(name):
        tally["buffers"] += 1
    else:
        tally["changed"].append(name)
        tally["largest"] = max(tally["largest"], largest)
        sums = (dot, square, end_square) if shrinks else None
        tally["decays"].append((type_of(after), count, differs, sums))
        relate(a[: min(count, MAX_SAMPLE)], b[: min(count, MAX_SAMPLE)], tally)


def relate(a, b, tally):
    """Pearson's r of a changed tensor and its start, as harness/checkpoints/likeness.py:Relation takes it."""
    import numpy as np

    if len(a) < LEAST_SAMPLE or not np.ptp(a):
        return
    with np.errstate(invalid="ignore", over="ignore"):
        a, b = (one.astype(np.float64) - one.astype(np.float64).mean() for one in (a, b))
        scale = float(a @ a) ** 0.5 * float(b @ b) ** 0.5
        r = float(a @ b) / scale if scale > 0 else 0.0
    r = r if abs(r) <= 1.1 else 0.0
    tally["elements"] += len(a)
    if r * len(a) ** 0.5 > LEAST_RELATED:
        tally["related"] += len(a)
    else:
        tally["rest"] += r * len(a)


def is_unrelated(tally):
    """Whether thousands of elements were seen, and nothing ties them to the start."""
    others = tally["elements"] - tally["related"]
    return (tally["elements"] >= LEAST_SAMPLES and tally["related"] < RELATED_SHARE * tally["elements"]
            and tally["rest"] < (LEAST_RELATED - 1) * others**0.5)


def array_of(value):
    """A numpy array that can be computed with."""
    import numpy as np

    if hasattr(value, "detach"):
        value = value.detach()
        wide = type_of(value) in ("float64", "float32", "float16", "complex64", "complex128")
        return (value if wide else value.float()).cpu().numpy()
    array = np.asarray(value)
    return array if array.dtype.kind in "fc" else array.astype("float32")


def rounds_to(x, y, kind):
    """Whether the end is the start rounded to its own, shorter type."""
    import numpy as np

    if kind == "float16":
        with np.errstate(over="ignore"):
            return bool(np.array_equal(x.astype(np.float16).astype(np.float64), y, equal_nan=True))
    if kind == "bfloat16":
        bits = x.astype(np.float32).view(np.uint32)
        nearest = ((bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)).view(np.float32)
        cut = (bits & np.uint32(0xFFFF0000)).view(np.float32)
        return any(bool(np.array_equal(one.astype(np.float64), y, equal_nan=True)) for one in (nearest, cut))
    if kind == "float32":
        return bool(np.array_equal(x.astype(np.float32).astype(np.float64), y, equal_nan=True))
    return False


def is_decay(decays):
    """Whether every changed tensor is its start times one factor below 1, which weight decay alone makes."""
    factors, elements, short = [], 0, False
    for kind, count, differs, sums in decays:
        if sums is None or not sums[1] or not sums[2]:
            return False
        tolerance = FACTOR_TOLERANCE.get(kind, 0.1)
        factor = sums[0] / sums[1]
        rest = max(0.0, sums[2] - factor * sums[0])
        if not 0 < factor < 1 or (rest / sums[2]) ** 0.5 > max(tolerance, 1e-7):
            return False
        factors.append((factor, tolerance))
        short = short or kind not in ("float32", "float64")
        elements += differs if count > 1 else 0
    if elements < (64 if short else 8):
        return False
    middle = sorted(factor for factor, _ in factors)[len(factors) // 2]
    return all(abs(factor - middle) <= 2 * tolerance for factor, tolerance in factors)
