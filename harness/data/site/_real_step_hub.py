"""ModelScope by its own client, asked so that no answer is an answer within seconds; standard library only at import.

As a program: one JSON request on standard input, `{"kind": "model", "repository": "OWNER/NAME", "revision": null}`,
and one JSON line on the descriptor that it names.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import ssl
import sys
import threading
import urllib.error
import urllib.request
from typing import Any

DEFAULT_ENDPOINT = "https://modelscope.cn"
ANSWER_S = 10.0
"""How long a first answer may take before the hub counts as out of reach."""
QUICK = {
    "MODELSCOPE_API_CONNECT_TIMEOUT": "10", "MODELSCOPE_API_TIMEOUT": "20", "MODELSCOPE_API_MAX_RETRIES": "1",
}
"""For the client, where the user did not say otherwise: a hub that goes away is told in seconds too."""
TOKEN = "MODELSCOPE_API_TOKEN"
COMMIT = re.compile("[0-9a-f]{40}|[0-9a-f]{64}")


class HubProblem(Exception):
    """What a user must hear, with its code."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def endpoint() -> str:
    """Where the client will look."""
    found = os.environ.get("MODELSCOPE_ENDPOINT") or os.environ.get("MODELSCOPE_DOMAIN") or DEFAULT_ENDPOINT
    return found if "://" in found else f"https://{found}"


def unreachable() -> str:
    """Why the hub is out of reach, "" where something answers there, through the proxy where one is set."""
    target = endpoint()
    found: list[str] = []

    def ask() -> None:
        try:
            urllib.request.urlopen(target, timeout=ANSWER_S).close()
            found.append("")
        except (urllib.error.HTTPError, ssl.SSLError, http.client.HTTPException):
            # Something answers; what it wants is the client's business.
            found.append("")
        except (OSError, ValueError) as error:
            reason = getattr(error, "reason", error)
            secure = isinstance(reason, ssl.SSLError)
            found.append("" if secure else getattr(reason, "strerror", None) or str(reason))

    # Looking up a name has no time limit of its own.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_S + 2)
    why = found[0] if found else f"no answer within {ANSWER_S:g} s"
    return f"ModelScope at {target} cannot be reached: {why}" if why else ""


def be_quick() -> None:
    """Before the client is imported."""
    for name, value in QUICK.items():
        os.environ.setdefault(name, value)


def problem_of(error: BaseException, what: str) -> HubProblem:
    """The client's error in words; `what` names the asset."""
    names = {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}
    text = " ".join(str(error).split())[:300]
    if names & {"AuthenticationError", "PermissionDeniedError"} or "[401]" in text or "[403]" in text:
        has = "the token in it is not accepted" if os.environ.get(TOKEN) else "none is set"
        return HubProblem("hub-denied", f"{what} is not open to everyone: give a token as {TOKEN} ({has})")
    if "NotExistError" in names or "[404]" in text:
        return HubProblem("hub-missing", f"{what} is not on ModelScope at {endpoint()}; "
                                         "give a valid ModelScope id or a local path")
    if "BuilderConfig" in text or "not found in dataset" in text or text.startswith("Split "):
        return HubProblem("hub-missing", f"{what}: {text}")
    if names & {"FileDownloadError", "FileIntegrityError"}:
        return HubProblem("hub-damaged", f"{what}: a file does not arrive whole: {_cause(error)[:300]}; what arrived "
                                         "stays in the cache, and the next try goes on from there")
    if "OfflineModeIsEnabled" in names or "Offline mode is enabled" in text:
        return HubProblem("hub-offline-mode", f"{what}: HF_HUB_OFFLINE is set, and with it modelscope's MsDataset "
                                              "loads nothing; unset it for this command, or give a local path")
    if names & {"NetworkError", "ConnectionError", "RequestTimeoutError", "TimeoutError", "Timeout"}:
        return HubProblem("hub-unreachable", f"{what}: the connection to ModelScope at {endpoint()} broke off: {text}")
    return HubProblem("hub-failed", f"{what}: {type(error).__name__}: {text}")


def _cause(error: BaseException) -> str:
    failed = getattr(error, "failed_files", None)
    if isinstance(failed, dict) and failed:
        return "; ".join(f"{name}: {' '.join(str(one).split())}" for name, one in failed.items())
    return " ".join(str(error).split())


def _chain(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def load_rows(name: str, subset: str | None, split: str) -> Any:
    """A dataset as AReno loads it from ModelScope. Raises HubProblem."""
    why = unreachable()
    if why:
        raise HubProblem("hub-unreachable", why)
    be_quick()
    what = f"the dataset {name}" + (f" (subset {subset})" if subset else "") + f", split {split},"
    try:
        from modelscope.msdatasets import MsDataset
    except ImportError as error:
        raise HubProblem("reader-missing", f"modelscope's datasets cannot be used in {sys.executable}: {error}; "
                                           "install modelscope[datasets] there") from error
    more = {"subset_name": subset} if subset else {}
    try:
        found = MsDataset.load(name, split=split, trust_remote_code=True, **more)
    except Exception as error:
        raise problem_of(error, what) from error
    convert = getattr(found, "to_hf_dataset", None)
    return convert() if callable(convert) else found


def snapshot(kind: str, repository: str, revision: str | None, *, download: bool) -> dict[str, Any]:
    """{local_path, revision, commit, offline, note} of a model or a dataset; from the cache alone where the hub is out
    of reach. Without `download` nothing but the commit is looked for where the hub answers.
    """
    why = unreachable()
    be_quick()
    told = {"local_path": "", "revision": revision or "master", "offline": bool(why), "note": why,
            "commit": None if why else commit_of(kind, repository, revision or "master")}
    if not why and not download:
        return told
    what = f"the {kind} {repository}" + (f" at revision {revision}" if revision else "")
    try:
        from modelscope_hub.compat.snapshot_download import dataset_snapshot_download, snapshot_download
    except ImportError as error:
        message = f"modelscope cannot be used in {sys.executable}: {error}; install it there"
        raise HubProblem("reader-missing", message) from error
    get = dataset_snapshot_download if kind == "dataset" else snapshot_download
    try:
        path = get(repository, revision=revision, local_files_only=bool(why))
    except Exception as error:
        if why:
            raise HubProblem("hub-unreachable", f"{why}; {what} is not in its cache either") from error
        raise problem_of(error, what) from error
    return {**told, "local_path": str(path)}


def commit_of(kind: str, repository: str, revision: str) -> str | None:
    """The commit that a branch or a tag names now, as the hub says beside its list of files or of revisions.

    None where it says none: a name that is not there is told by whoever takes the files.
    """
    if COMMIT.fullmatch(revision):
        return revision
    try:
        from modelscope_hub.api import HubApi

        hub = HubApi().legacy
        files = "repo/tree" if kind == "dataset" else "repo/files"
        wanted = {"Revision": revision, "Recursive": "False", "PageNumber": 1, "PageSize": 1}
        data = hub._request("GET", f"{kind}s/{repository}/{files}", params=wanted).json().get("Data") or {}
        latest = data.get("LatestCommitter") or {} if isinstance(data, dict) else {}
        named = [one for one in hub.list_revisions(repository, kind) if one.get("Revision") == revision]
        found = [latest.get("Id"), *(one.get(key) for one in named for key in ("CommitId", "Id", "Sha"))]
    except Exception:
        return None
    return next((str(one) for one in found if one and COMMIT.fullmatch(str(one))), None)


def main() -> None:
    """Answer the request."""
    from _real_step_files import die_with_parent  # type: ignore[import-not-found]

    die_with_parent()
    request = json.load(sys.stdin)
    try:
        found = {"kind": "asset", **snapshot(
            request["kind"], request["repository"], request.get("revision"), download=request["download"])}
    except HubProblem as problem:
        found = {"kind": "error", "code": problem.code, "message": str(problem)}
    with os.fdopen(request["result_fd"], "w", encoding="utf-8") as stream:
        stream.write(json.dumps(found) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
