"""Tensors of torch's own files: archives by the restricted loader, distributed checkpoints without their pickles."""

# mypy: ignore-errors

import pickle
import re
import sys
import types
import zipfile

import _safe_classes
from _answer import NotAttempted, Refused

MAX_ITEMS = 2_000_000


def restricted_load(path, request, answer):
    """torch.load with weights_only, and the classes of _safe_classes; Refused names what it would have to run."""
    import torch

    if zipfile.is_zipfile(path):
        try:
            with _safe_classes.allowed(path):
                return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError as error:
            why = refusal(path, error)
        except RuntimeError as error:
            if "TorchScript archive" not in str(error):
                raise
            why = (f"{path}: a TorchScript archive, which is a program with its weights; save model.state_dict() too, "
                   "or give --reload-with a function that calls torch.jit.load")
    else:
        why = f"{path}: a bare pickle, whose loading can run code"
    if not request["allow_pickle"]:
        raise Refused(why)
    answer.note(f"unrestricted unpickling was allowed: {why}")
    answer.fields["pickle_allowed"] = True
    sys.path.append(request["workdir"])
    try:
        return torch.load(  # nosec: only here, only when asked for
            path, map_location="cpu", weights_only=False, pickle_module=_pickle_of(request))
    except AttributeError as error:
        # A class is pickled by its place in the program, which is not that of this process.
        if "get attribute" not in str(error):
            raise
        raise NotAttempted(f"it asks for code of the program that is not at hand: {error}") from error


def _pickle_of(request):
    """The pickle module, for which what the program's start defines lies in __main__ as when it ran."""
    files = request.get("program_files") or []
    names = {}

    class Unpickler(pickle.Unpickler):
        def find_class(self, module, name):
            if module == "__main__" and files:
                from _program import load_sources

                if not names:
                    names.update(next((one.names for one in load_sources(files, request["workdir"])
                                       if one.path == files[0]), {"": None}))
                if name in names:
                    return names[name]
            return super().find_class(module, name)

    module = types.ModuleType("pickle")
    vars(module).update(vars(pickle))
    module.Unpickler = Unpickler
    module.load = lambda stream, **more: Unpickler(stream, **more).load()
    return module


def refusal(path, error):
    """What a restricted load stumbles over, in one line."""
    text = str(error)
    named = re.search(r"GLOBAL ([\w.]+)", text) or re.search(r"Unsupported (?:class|operand) ([\w.]+)", text)
    what = f"unsupported global {named.group(1).rstrip('.')}" if named else text.splitlines()[0][:200]
    return f"{path}: not loadable with the restricted loader ({what}); an unrestricted load can run code"


def tensors_of(state):
    """(name, tensor) of nested containers; each container is looked at once."""
    import torch

    pending, seen, count = [("", state)], set(), 0
    while pending and count < MAX_ITEMS:
        name, value = pending.pop()
        count += 1
        if isinstance(value, torch.Tensor):
            yield name, value
        elif isinstance(value, (dict, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            items = value.items() if isinstance(value, dict) else enumerate(value)
            pending += [(f"{name}.{key}" if name else str(key), item) for key, item in items]
        elif isinstance(value, torch.nn.Module):
            pending.append((name, value.state_dict()))


def distributed_tensors(request):
    """(name, tensor) of each directory with parts; entries that are no tensors are pickles, and are left out."""
    import os

    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    places = sorted({os.path.dirname(file) for file in request["files"] if file.endswith(".distcp")})  # noqa: PTH120
    for place in places or [request["path"]]:
        reader = _tensor_reader(place)
        metadata = reader.read_metadata()
        for name, entry in metadata.state_dict_metadata.items():
            if isinstance(entry, TensorStorageMetadata):
                state = {name: torch.empty(entry.size, dtype=entry.properties.dtype)}
                dcp.load(state, storage_reader=reader, planner=_flat_planner(), no_dist=True)
                yield name, state[name]


def _flat_planner():
    from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner

    return DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)


def _tensor_reader(place):
    """torch's own reader, whose .metadata is unpickled with torch's classes of metadata alone."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import StorageMeta

    class Reader(FileSystemReader):
        found = None

        def read_metadata(self, *args, **kwargs):
            if self.found is None:
                with self.fs.create_stream(self._metadata_path(), "rb") as stream:
                    self.found = _MetadataUnpickler(stream).load()
            if getattr(self.found, "storage_meta", None) is None:
                self.found.storage_meta = StorageMeta()
            self.found.storage_meta.load_id = self.load_id
            return self.found

        def _metadata_path(self):
            return self.fs.concat_path(self.path, ".metadata")

    return Reader(place)


class _MetadataUnpickler(pickle.Unpickler):
    """Classes that describe tensors and where they lie; anything else is refused."""

    MODULES = ("torch.distributed.checkpoint.metadata", "torch.distributed.checkpoint.filesystem")
    NAMES = ("Metadata", "MetadataIndex", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata",
             "TensorProperties", "StorageMeta", "_MEM_FORMAT_ENCODING", "_StorageInfo", "_StoragePrefix")
    OTHERS = (("torch", "Size"), ("torch.serialization", "_get_layout"), ("collections", "OrderedDict"),
              ("pathlib", "PosixPath"), ("pathlib", "PurePosixPath"), ("pathlib._local", "PosixPath"))

    def find_class(self, module, name):
        import torch

        known = (module in self.MODULES and name in self.NAMES) or (module, name) in self.OTHERS
        if known or (module == "torch" and isinstance(getattr(torch, name, None), torch.dtype)):
            return super().find_class(module, name)
        raise Refused(f".metadata: it asks for {module}.{name}, which an unrestricted load would run")
