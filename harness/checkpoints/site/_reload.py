"""Loads one checkpoint in a process of its own: a request as a JSON line on standard input, an answer as one on the
descriptor that the request names.

Runs in the trainer's interpreter, without the harness: standard library, and what the checkpoint needs. Whatever a
library prints is kept apart from it. It ends when its standard input does, so that it does not outlive who asked.
"""

# Untyped: it runs beside libraries that the type checker does not see.
# mypy: ignore-errors

import json
import os
import sys
import threading
import time
import traceback

from _answer import MAX_ERROR, Answer, Broken, NotAttempted, Refused


def load(request, answer):
    """Dispatch by adapter."""
    adapter = request["adapter"]
    if request.get("is_model"):
        import _model

        _model.load_into_class(request, answer)
    elif adapter in ("transformers", "peft"):
        import _load_transformers

        getattr(_load_transformers, f"load_{adapter}")(request, answer)
    elif adapter == "lightning":
        import _load_torch

        _load_torch.load_torch(request, answer)
    elif adapter in ("safetensors", "torch", "torch-distributed"):
        import _load_torch

        getattr(_load_torch, "load_" + adapter.replace("-", "_"))(request, answer)
    elif adapter == "deepspeed":
        import _load_deepspeed

        _load_deepspeed.load_deepspeed(request, answer)
    elif adapter in ("keras", "keras-weights", "orbax", "flax"):
        import _load_arrays

        getattr(_load_arrays, "load_" + adapter.replace("-", "_"))(request, answer)
    elif adapter == "areno":
        import _load_areno

        _load_areno.load_areno(request, answer)
    elif adapter == "tiny_lm":
        import _load_tiny_lm

        _load_tiny_lm.load_tiny_lm(request, answer)
    else:
        raise NotAttempted(f"no loader for {adapter}")


def answer_to(request):
    """The answer's fields; no exception gets out."""
    answer = Answer(request["adapter"])
    started = time.time()
    try:
        load(request, answer)
        if answer.fields["status"] == "ok":
            import _start

            _start.look(request, answer)
    except (Refused, NotAttempted) as error:
        answer.fields["status"] = "refused" if isinstance(error, Refused) else "not-attempted"
        answer.fields["error"] = str(error)[:MAX_ERROR]
    except ImportError as error:
        answer.fields["status"] = "not-attempted"
        answer.fields["error"] = f"a package is missing: {error}"[:MAX_ERROR]
    except MemoryError:
        answer.fields["status"] = "not-attempted"
        answer.fields["error"] = "it does not fit into memory"
    except Broken as error:
        answer.fail(error)
    except Exception as error:
        traceback.print_exc()
        answer.fail(f"{type(error).__name__}: {error}")
    answer.fields["load_seconds"] = round(time.time() - started, 3)
    answer.fields["peak_memory_bytes"] = _peak()
    return answer.fields


def answers_to(request):
    """The answer, and behind it, so that it stands whatever becomes of that, what the user's function made of it."""
    fields = answer_to(request)
    yield fields
    if request.get("function") and fields["status"] == "ok":
        import _function

        yield {"function": _function.call(request), "peak_memory_bytes": _peak()}


def _peak():
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1 if sys.platform == "darwin" else 1024)


def _end_with_stdin():
    while os.read(0, 4096):
        pass
    os._exit(1)


def main():
    """Answer one request."""
    line = bytearray()
    while (byte := os.read(0, 1)) and byte != b"\n":
        line += byte
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    request = json.loads(line)
    with os.fdopen(request["result_fd"], "w", encoding="utf-8") as stream:
        for fields in answers_to(request):
            json.dump(fields, stream)
            stream.write("\n")
            stream.flush()
    sys.stderr.flush()
    # Some libraries crash in their exit handlers, when everything is said.
    os._exit(0)


if __name__ == "__main__":
    main()
