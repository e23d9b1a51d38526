"""What gradients, and at the end parameters, show: whether any is nonzero, whether all are finite.

Reads from a device are few: the smallest gradients first, and none while a CUDA graph is captured.
Standard library only, Python 3.8 and later; torch is the program's.
"""

# mypy: ignore-errors

import math
import sys
import time

PEEK_INTERVAL_S = 0.1
EXIT_LOOK_S = 2.0
MAX_LOOKED_AT = 512


class GradLook:
    """What looking at gradients has shown, over all optimizers."""

    def __init__(self):
        self.checked = self.nonzero = self.nonfinite = self.gave_up = 0
        self.last_nonzero = None
        self.peeks = []
        self.last_peek = 0.0

    def peek(self, optimizer, found_inf, now):
        """Whether the last gradient is finite, left on its device until `settle`: NaN in a loss reaches every one."""
        if now - self.last_peek < PEEK_INTERVAL_S or is_capturing():
            return
        self.last_peek = now
        torch = sys.modules["torch"]
        with torch.no_grad():
            params = reversed(optimizer.param_groups[-1]["params"])
            grad = next((grad for grad in map(local_grad, params) if grad is not None), None)
            if grad is not None:
                bad = torch.isfinite(grad.detach()).all().logical_not()
                self.peeks.append(bad if found_inf is None else bad & (found_inf.detach().reshape(()) == 0))

    def settle(self):
        """Count what the peeks saw."""
        peeks, self.peeks = self.peeks, []
        self.nonfinite += sum(1 for bad in peeks if bad)

    def look(self, optimizer):
        """Look for a nonzero and for a non-finite element, the smallest gradients first."""
        torch = sys.modules["torch"]
        with torch.no_grad():
            grads = [local_grad(param) for group in optimizer.param_groups for param in group["params"]]
            grads = sorted((grad for grad in grads if grad is not None), key=lambda grad: grad.numel())
            limit = min(len(grads), MAX_LOOKED_AT)
            nonzero, finite, seen, size = False, True, 0, 1
            while seen < limit and not nonzero:
                part = grads[seen : min(seen + size, limit)]
                seen, size = seen + len(part), size * 2
                for norm in max_norms(torch, part):
                    nonzero = nonzero or norm != 0
                    finite = finite and math.isfinite(norm)
        self.nonfinite += not finite
        if not nonzero and seen < len(grads):
            self.gave_up += 1
            self.last_nonzero = None
            return
        self.checked += 1
        self.nonzero += nonzero
        self.last_nonzero = nonzero

    def to_json(self):
        """The `grad` object."""
        names = ("checked", "nonzero", "nonfinite", "gave_up", "last_nonzero")
        return {name: getattr(self, name) for name in names}


def is_capturing():
    """Whether a CUDA graph is being captured: a read from the device would break it."""
    cuda = sys.modules["torch"].cuda
    return cuda.is_initialized() and cuda.is_current_stream_capturing()


def local_grad(param):
    """Gradient values on this rank: a DTensor's shard, a sparse tensor's values; None for no elements."""
    grad = param.grad
    if grad is None:
        return None
    grad = getattr(grad, "_local_tensor", grad)
    layout = str(grad.layout)
    if layout == "torch.sparse_coo":
        grad = grad._values()
    elif layout.startswith("torch.sparse"):
        grad = grad.values()
    return grad if grad.numel() and grad.device.type != "meta" else None


def max_norms(torch, grads):
    """Largest absolute element of each gradient, NaN where there is one; one read per device."""
    by_device = {}
    for grad in grads:
        norm = torch.linalg.vector_norm(grad.detach(), float("inf")).to(torch.float32)
        by_device.setdefault(norm.device, []).append(norm)
    return [norm for norms in by_device.values() for norm in torch.stack(norms).tolist()]


def look_at_params(optimizers):
    """The `params` object: parameters that are looked at once training is over, those of them that are not finite.

    Nothing is read from a GPU that is still at work, since that could be a wait for another rank.
    """
    torch = sys.modules["torch"]
    if torch.cuda.is_initialized() and not torch.cuda.current_stream().query():
        return None
    checked = nonfinite = 0
    deadline = time.monotonic() + EXIT_LOOK_S
    groups = [group for optimizer in optimizers if optimizer is not None for group in optimizer.param_groups]
    with torch.no_grad():
        for param in (param for group in groups for param in group["params"]):
            if time.monotonic() > deadline:
                break
            value = getattr(param, "_local_tensor", param).detach()
            if value.numel() and value.device.type != "meta" and value.is_floating_point():
                checked += 1
                nonfinite += not all(map(math.isfinite, max_norms(torch, [value])))
    return {"checked": checked, "nonfinite": nonfinite}
