"""Whether ranks exchange anything while they train: torch.distributed's collectives between two optimizer steps.

Two witnesses are put together. Python's collectives are wrapped: what they carry, in elements. And gloo and NCCL
number the collectives of a group; numbers that no call of Python's took are those of C++, as DistributedDataParallel's
reducer and the functional collectives of DTensor make them. A barrier carries nothing, a scalar or an object is the
kind of thing that is exchanged to be logged: neither shares a gradient. An exchange of gradients or weights has at
least as many elements as are trained; a smaller one may be of activations, or of numbers to log.

Standard library only; nothing is asked before the program has made a process group.
"""

# mypy: ignore-errors

import functools
import itertools
import sys
import threading

FEW = 64
"""Elements that a message may have and still be a handful of numbers to log."""
MAX_PARAMS = 4096
MAX_OPTIMIZERS = 64
MAX_DEPTH = 4
COUNTING = frozenset({"gloo", "nccl"})
"""Backends known to number every collective, wherever it was called."""
TENSORS = (
    "all_gather", "all_gather_coalesced", "all_gather_into_tensor", "all_gather_single", "all_reduce",
    "all_reduce_coalesced", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce", "reduce_scatter",
    "reduce_scatter_single", "reduce_scatter_tensor", "scatter", "_all_gather_base", "_reduce_scatter_base",
)
PAIRS = ("send", "recv", "isend", "irecv")
OBJECTS = ("all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list", "send_object_list",
           "recv_object_list")
EMPTY = ("barrier", "monitored_barrier")
WRAPPERS = {
    "torch.nn.parallel.distributed": "DistributedDataParallel",
    "torch.distributed.fsdp.fully_sharded_data_parallel": "FullyShardedDataParallel",
    "deepspeed.runtime.engine": "DeepSpeedEngine",
}
OTHERS = ("horovod", "mpi4py", "bagua", "byteps", "hivemind", "torchft", "cupy", "ray.util.collective", "nvshmem")
"""Modules through which ranks can exchange without torch.distributed."""


class Exchange:
    """Counts of one process. A step's exchange is what was exchanged since the step before it."""

    def __init__(self):
        self.inside = threading.local()
        self.wrappers = set()
        self.others = set()
        self.readable = True
        self.first = False
        self.steps = self.few_steps = self.whole_steps = self.hidden_steps = 0
        self.seen_steps = 0
        self.numbers = {}
        self.trained = {}
        self.last_trained = 0
        self._clear()

    def _clear(self):
        self.elements = self.calls = self.own = 0
        self.shared = False

    def install(self, module):
        """Listen to the collectives or to the model wrapper that a module defines; False where it defines none."""
        if module.__name__ == "torch.distributed.distributed_c10d":
            for names, kind in ((TENSORS, "tensors"), (PAIRS, "pair"), (OBJECTS, "object"), (EMPTY, "empty")):
                for name in names:
                    original = getattr(module, name, None)
                    if original is not None:
                        setattr(module, name, listening(original, kind))
        elif module.__name__ in WRAPPERS:
            name = WRAPPERS[module.__name__]
            note_instances(getattr(module, name), name)
        else:
            return False
        return True

    def called(self, kind, args, kwargs, call):
        """A collective of Python's: what it carries, and the numbers that it took."""
        before = self._advance(count=False)
        try:
            return call()
        finally:
            after = self._advance(count=False)
            if before is not None and after is not None:
                self.own += max(0, after - before)
            if kind != "empty":
                self.calls += 1
                elements = count_elements(args, kwargs)
                self.elements += elements
                self.shared = self.shared or elements > FEW

    def at_step(self, optimizer):
        """An optimizer step was applied: put together what was exchanged before it."""
        group = sys.modules.get("torch.distributed")
        if group is None or not group.is_available() or not group.is_initialized():
            return
        taken = self._advance(count=True)
        hidden = taken is not None and taken > self.own
        self.last_trained = self._count_trained(optimizer)
        whole = self.elements >= self.last_trained > 0
        shared = self.shared or hidden or whole
        if self.seen_steps == 0:
            self.first = shared
        else:
            self.steps += shared
            self.few_steps += not shared and self.calls > 0
            self.whole_steps += whole
            self.hidden_steps += hidden
        self.seen_steps += 1
        self._clear()

    def _count_trained(self, optimizer):
        """Elements that an optimizer trains, counted anew after 1, 2, 4, 8, ... steps."""
        key = id(optimizer)
        if key not in self.trained or not self.seen_steps & (self.seen_steps - 1):
            if len(self.trained) >= MAX_OPTIMIZERS:
                self.trained.clear()
            self.trained[key] = count_trained(optimizer)
        return self.trained[key]

    def _advance(self, count):
        """Collectives of all groups since the last time that `count` was true; None where a backend does not say."""
        try:
            total = 0
            found = numbers(sys.modules["torch.distributed.distributed_c10d"])
            for key, number in found.items():
                total += max(0, number - self.numbers.get(key, 0))
            if count:
                self.numbers = found
            return total
        except Exception:
            self.readable = False
            return None

    def look(self, optimizer):
        """See from a parameter whether the model is sharded, or shared by other means."""
        for group in optimizer.param_groups:
            for param in group["params"][:1]:
                if hasattr(param, "_local_tensor"):
                    self.wrappers.add("DTensor")
                elif param.device.type == "cpu" and param.is_shared():
                    self.others.add("shared memory")

    def to_json(self):
        """The `exchange` object; None where no step was made within a process group."""
        if not self.seen_steps:
            return None
        rpc = sys.modules.get("torch.distributed.rpc.api")
        if rpc is not None and getattr(rpc, "_is_current_rpc_agent_set", bool)():
            self.others.add("torch.distributed.rpc")
        return {
            "observed_steps": self.seen_steps,
            "first": self.first,
            "steps": self.steps,
            "few_steps": self.few_steps,
            "whole_steps": self.whole_steps,
            "hidden_steps": self.hidden_steps,
            "after": self.shared,
            "whole_after": self.elements >= self.last_trained > 0,
            "readable": self.readable,
            "wrappers": sorted(self.wrappers),
            "others": sorted(self.others | {name for name in OTHERS if name in sys.modules}),
        }


CURRENT = Exchange()


def renew():
    """A forked child counts anew."""
    global CURRENT
    CURRENT = Exchange()
    return CURRENT


def listening(original, kind):
    """A collective that is counted, unless it runs within another."""

    @functools.wraps(original)
    def collective(*args, **kwargs):
        exchange = CURRENT
        if getattr(exchange.inside, "on", False):
            return original(*args, **kwargs)
        exchange.inside.on = True
        try:
            return exchange.called(kind, args, kwargs, lambda: original(*args, **kwargs))
        finally:
            exchange.inside.on = False

    return collective


def note_instances(cls, name):
    """Note that an instance of a model wrapper was made."""
    original = cls.__init__

    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        original(self, *args, **kwargs)
        CURRENT.wrappers.add(name)

    cls.__init__ = __init__


def numbers(c10d):
    """{(group, backend): number of its last collective}; raises where a backend is not known to count."""
    found = {}
    torch = sys.modules["torch"]
    for group in list(c10d._world.pg_map):
        config = [entry.rpartition(":") for entry in str(c10d._world.pg_backend_config[group]).split(",")]
        names = {name for _, _, name in config}
        if not names <= COUNTING:
            raise ValueError(f"{names}: not known to number its collectives")
        if len(names) == 1:
            found[id(group)] = group._get_sequence_number_for_group()
            continue
        for device, _, name in config:
            found[id(group), name] = group._get_backend(torch.device(device))._get_sequence_number_for_group()
    return found


def count_elements(args, kwargs):
    """Elements of the largest argument, a list of tensors or an object that holds some being one."""
    try:
        return max(elements_of(value, MAX_DEPTH) for value in (0, *args, *kwargs.values()))
    except Exception:
        return 0


def elements_of(value, depth):
    """Elements of the tensors and arrays within a value."""
    if isinstance(value, (list, tuple, dict)):
        items = itertools.islice(value.values() if isinstance(value, dict) else value, MAX_PARAMS)
        return sum(elements_of(item, depth - 1) for item in items) if depth else 0
    if hasattr(value, "numel"):
        return value.numel()
    size = getattr(value, "size", 0)
    return size if isinstance(size, int) and hasattr(value, "dtype") else 0


def count_trained(optimizer):
    """Elements of the parameters that an optimizer has a gradient for; of all trainable ones where none is kept."""
    params = [param for group in optimizer.param_groups for param in group["params"][:MAX_PARAMS]]
    params = [param for param in params if param.requires_grad]
    return sum(param.numel() for param in ([param for param in params if param.grad is not None] or params))
