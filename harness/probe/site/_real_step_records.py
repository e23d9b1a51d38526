"""Counts of one torch optimizer: applied steps, those that a scaler withheld, its learning rates.

Standard library only, Python 3.8 and later.
"""

# mypy: ignore-errors

import sys
import weakref

MAX_GROUPS = 16


class Record:
    """Counts of one optimizer, which is held weakly."""

    __slots__ = (
        "calls",
        "first_call",
        "last_call",
        "last_check",
        "lr_first",
        "lr_initial",
        "lr_max",
        "lr_min",
        "lr_positive_steps",
        "lr_unknown_steps",
        "name",
        "num_params",
        "odd_lr_positive",
        "pending",
        "ref",
        "steps",
    )

    def __init__(self, optimizer):
        kind = type(optimizer)
        self.ref = weakref.ref(optimizer)
        self.name = f"{kind.__module__}.{kind.__qualname__}"[:200]
        self.calls = self.steps = self.lr_positive_steps = self.lr_unknown_steps = 0
        self.first_call = self.last_call = 0
        self.num_params = count_params(optimizer)
        self.odd_lr_positive = self.lr_min = self.lr_max = None
        self.lr_first = self.lr_initial = None
        self.pending = []
        self.last_check = 0.0

    def add(self, lr_positive):
        """Count an applied step."""
        self.steps += 1
        if lr_positive:
            self.lr_positive_steps += 1
        elif lr_positive is None:
            self.lr_unknown_steps += 1

    def settle(self):
        """Count the steps whose `found_inf` was left on the device; the number of them that were skipped."""
        pending, self.pending = self.pending, []
        if not pending:
            return 0
        torch = sys.modules["torch"]
        with torch.no_grad():
            flags = torch.stack([found_inf.detach().reshape(()) for found_inf, _ in pending]).tolist()
        for flag, (_, lr_positive) in zip(flags, pending):  # noqa: B905 (Python 3.10)
            if not flag:
                self.add(lr_positive)
        return sum(1 for flag in flags if flag)

    def read_lr(self, optimizer, may_read):
        """Whether a group's learning rate is above 0; None when none says. Tensors are read if allowed."""
        known = False
        for group in optimizer.param_groups:
            lr = group.get("lr")
            if lr is None:
                continue
            if not isinstance(lr, (int, float)):
                if may_read:
                    self.odd_lr_positive = bool(lr > 0)
                if self.odd_lr_positive is None:
                    continue
                lr = 1 if self.odd_lr_positive else 0
            elif self.lr_max is None or not self.lr_min <= lr <= self.lr_max:
                self.note_rate(lr)
            if lr > 0:
                return True
            known = True
        return False if known else None

    def note_rates(self, optimizer):
        """Widen the range of learning rates by those of all groups, tensors among them."""
        for group in optimizer.param_groups:
            lr = group.get("lr")
            if lr is not None:
                self.note_rate(float(lr))
        if self.lr_first is None:
            self.lr_first = rates_of(optimizer, "lr")
            self.lr_initial = rates_of(optimizer, "initial_lr")

    def note_rate(self, lr):
        """Widen the range; what is not finite has no place in it."""
        if float("-inf") < lr < float("inf"):
            self.lr_min = lr if self.lr_min is None else min(self.lr_min, lr)
            self.lr_max = lr if self.lr_max is None else max(self.lr_max, lr)

    def to_json(self):
        """Entry in `optimizers`."""
        optimizer = self.ref()
        if optimizer is not None:
            self.num_params = count_params(optimizer)
        return {
            "class": self.name,
            "steps": self.steps,
            "lr_positive_steps": self.lr_positive_steps,
            "lr_unknown_steps": self.lr_unknown_steps,
            "lr_min": self.lr_min,
            "lr_max": self.lr_max,
            "lr_first": self.lr_first,
            "lr_initial": self.lr_initial,
            "params": self.num_params,
            "first_call": self.first_call,
            "last_call": self.last_call,
        }


def rates_of(optimizer, key):
    """The largest of the different finite rates that parameter groups hold under this key, falling."""
    rates = {float(group[key]) for group in optimizer.param_groups if group.get(key) is not None}
    return sorted((rate for rate in rates if float("-inf") < rate < float("inf")), reverse=True)[:MAX_GROUPS]


def count_params(optimizer):
    """Number of parameter tensors."""
    return sum(len(group["params"]) for group in getattr(optimizer, "param_groups", ()))
