"""What a process that loads a checkpoint answers, and the three ways in which a loader ends early."""

# mypy: ignore-errors

MAX_NAMES = 50
MAX_ERROR = 2000


class Refused(Exception):
    """Loading would run code from the checkpoint; the message says which."""


class NotAttempted(Exception):
    """It cannot be loaded here; the message says why."""


class Broken(Exception):
    """What was loaded is no whole model; the message says why."""


class Answer:
    """What is found on the way; names are bounded lists beside their counts."""

    def __init__(self, adapter):
        self.fields = {
            "adapter": adapter, "status": "ok", "error": None, "missing": [], "unexpected": [], "mismatched": [],
            "nonfinite": [], "dtype_changes": [], "tensors": 0, "forward_ok": None, "samples": [], "notes": [],
            "eval_loss": None, "pickle_allowed": False, "values_read": False,
            "comparison": None, "mark_digests": [], "doubts": [],
        }

    def names(self, field, names):
        """A bounded list; a note tells how many there are where some are left out."""
        names = sorted(str(name)[:300] for name in names)
        self.fields[field] = names[:MAX_NAMES]
        if len(names) > MAX_NAMES:
            self.note(f"{len(names)} {field}")

    def note(self, text):
        """Something worth knowing that breaks nothing."""
        self.fields["notes"].append(str(text)[:500])

    def doubt(self, text):
        """What a guess found and cannot tell for sure: a note that is worth a look."""
        self.note(text)
        self.fields["doubts"].append(str(text)[:500])

    def fail(self, error):
        """The first failure counts."""
        if self.fields["status"] == "ok":
            self.fields["status"] = "failed"
            self.fields["error"] = str(error)[:MAX_ERROR]
