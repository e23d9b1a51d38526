"""Values of a tensor beside those of a marked parameter: the same model in any shape is alike, another one is not."""

from __future__ import annotations

import math
import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checkpoints.likeness import (
    MAX_CANDIDATES,
    Relation,
    Values,
    bound_of,
    correlation,
    is_cast_of,
    is_partly_unlike,
    is_unlike,
    positions,
)

FLOATS = st.floats(-1e6, 1e6, width=32)


def drawn(seed: int, count: int = 64) -> Values:
    source = random.Random(seed)
    return tuple(source.gauss(0, 1) for _ in range(count))


def mixed(first: Values, second: Values, share: float) -> Values:
    return tuple((1 - share) * a + share * b for a, b in zip(first, second, strict=True))


FIRST, LAST = drawn(0), mixed(drawn(0), drawn(1), 0.3)
MARK = {"shape": (8, 8), "values": FIRST, "values_last": LAST}
SMALL = {"shape": (16,), "values": FIRST[:16], "values_last": LAST[:16]}
BIAS = {"shape": (12,), "values": (0.0,) * 12, "values_last": drawn(4, 12)}


@pytest.mark.parametrize(("held", "unlike"), [
    ({(8, 8): [LAST]}, False), ({(8, 8): [FIRST]}, False), ({(8, 8): [mixed(FIRST, LAST, 0.5)]}, False),
    ({(8, 8): [mixed(LAST, drawn(2), 0.4)]}, False), ({(8, 8): [tuple(3 * value for value in LAST)]}, False),
    ({(8, 8): [drawn(2)]}, True), ({(8, 8): [(0.02,) * 64]}, True), ({(8, 8): [(math.nan,) * 64]}, True),
    ({(8, 8): [drawn(seed) for seed in range(2, 300)]}, True), ({(8, 8): [*map(drawn, range(2, 300)), LAST]}, False),
    ({(8, 8): [drawn(seed) for seed in range(MAX_CANDIDATES + 1)]}, False), ({}, False), ({(8, 8): [()]}, False),
])
def test_only_what_is_like_neither_start_nor_end_is_unlike(
    held: dict[tuple[int, ...], list[Values]], unlike: bool
) -> None:
    """An average, a scaled or an earlier model is alike; among too many tensors nothing is said."""
    assert is_unlike([MARK], held) is unlike


@pytest.mark.parametrize(("held", "mark", "wanted", "unlike"), [
    ([drawn(2)], MARK, 1, True), ([LAST], MARK, 1, False), ([mixed(FIRST, drawn(2), 0.6)], MARK, 1, False),
    ([], MARK, 1, False), ([(0.0,) * 64], MARK, 1, True), ([drawn(2), drawn(3)], MARK, 2, True),
    ([drawn(2), drawn(3)], MARK, 1, True), ([drawn(2), LAST], MARK, 2, False), ([drawn(2)], MARK, 2, False),
    ([drawn(2)], {**MARK, "values": (0.0,) * 64}, 1, False), ([drawn(2)[:32]], MARK, 1, False),
    ([drawn(2)], {**MARK, "between": [tuple(127 * value for value in drawn(2))]}, 1, False),
])
def test_a_tensor_that_is_another_is_seen_by_its_shape(
    held: list[Values], mark: dict[str, Any], wanted: int, unlike: bool
) -> None:
    """Where every parameter has a tensor of its own, and its start is no constant, from which noise leads anywhere."""
    assert is_partly_unlike([mark], {(8, 8): held}, {(8, 8): wanted}) is unlike
    transposed = {**MARK, "shape": (4, 16)}
    assert not is_partly_unlike([mark, transposed], {(8, 8): held, (16, 4): [FIRST]}, {(8, 8): wanted, (4, 16): 1})


@pytest.mark.parametrize(("held", "unlike"), [
    ({(16,): [LAST[:16]], (12,): [drawn(4, 12)]}, False), ({(16,): [drawn(8, 16)], (12,): [drawn(9, 12)]}, True),
    ({(16,): [drawn(8, 16)]}, False), ({(16,): [drawn(8, 16), drawn(7, 16)], (12,): [drawn(9, 12)]}, False),
])
def test_small_parameters_are_told_together(held: dict[tuple[int, ...], list[Values]], unlike: bool) -> None:
    """Where each has one tensor, and they are enough."""
    assert is_unlike([SMALL, BIAS], held) is unlike


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=80))
def test_correlation_is_between_minus_one_and_one(pairs: list[tuple[float, float]]) -> None:
    """Of anything finite, and that of values with themselves is 1 or, without variance, 0."""
    first, second = [a for a, _ in pairs], [b for _, b in pairs]
    assert -1.000001 <= correlation(first, second) <= 1.000001
    assert correlation(first, first) == pytest.approx(1.0 if max(first) > min(first) else 0.0)


def test_chance_reaches_the_bound_in_few_of_a_thousand_models() -> None:
    """Of 16 tensors of 64 drawn values, one for each mark; and of 100 to choose from."""
    for candidates, trials in ((1, 16_000), (100, 1_000)):
        bound = bound_of(64, candidates)
        hits = sum(any(correlation(drawn(n), drawn(10**6 + n * candidates + m)) >= bound for m in range(candidates))
                   for n in range(trials // candidates))
        assert hits <= 0.002 * trials


@given(FLOATS)
def test_a_cast_is_known(value: float) -> None:
    """To float16 and bfloat16, to nearest; another value is none."""
    cut = struct.unpack(">f", struct.pack(">f", value)[:2] + b"\0\0")[0]
    assert is_cast_of([value], [cut], "BF16")
    if abs(value) < 60_000:
        half = struct.unpack(">e", struct.pack(">e", value))[0]
        assert is_cast_of([value], [half], "F16") or abs(value) < 6.2e-5
    assert not is_cast_of([value], [value + 1 + abs(value)], "BF16")
    assert not is_cast_of([value], [value, value], "BF16")


@pytest.mark.parametrize(("size", "count"), [(0, 0), (1, 1), (64, 64), (65, 64), (4096, 64), (10**9, 64)])
def test_positions_are_spread_over_the_beginning(size: int, count: int) -> None:
    """Rising, and within the first 4096 elements."""
    found = positions(size)
    assert len(found) == count and found == sorted(set(found)) and all(place < min(size, 4096) for place in found)


def test_relation_needs_thousands_of_elements() -> None:
    """Fewer tell nothing; a part that is related makes the whole so."""
    import numpy as np

    random_values = np.random.default_rng(0).standard_normal((3, 5000)).astype(np.float32)
    for pairs, is_none in (
        ([(0, 1)], True), ([(0, 0)], False), ([(0, 1), (2, 2)], False), ([], False),
    ):
        relation = Relation()
        for first, second in pairs:
            relation.add(random_values[first], random_values[second])
        assert relation.is_none is is_none
    few = Relation()
    few.add(random_values[0, :4000], random_values[1, :4000])
    flat = Relation()
    flat.add(np.ones(9000, np.float32), random_values[0])
    assert not few.is_none and not flat.is_none
