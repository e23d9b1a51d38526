"""A ModelScope hub on loopback: repositories below ROOT/models and ROOT/datasets, served as modelscope's client asks.

It speaks the part of the HTTP interface that snapshots, single files and MsDataset use. Repositories may be closed to
those without a token, have revisions of their own, cut downloads short once, and lie about digests.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CREATED = 1_700_000_000
CUT_AFTER = 500_000
NOT_FOUND = 10010205001


class Hub:
    """The server; use it as a context."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.token = "made-up-token-1234567890"
        self.closed: set[str] = set()
        """Repositories that want the token."""
        self.cut: set[str] = set()
        """Files whose next whole download is cut."""
        self.lies: set[str] = set()
        """Files whose digest is told wrong."""
        self.hangs = False
        """Whether requests are accepted and never answered."""
        self.names_commits = True
        """Whether a list of files says which commit it is of."""
        self.requests: list[tuple[str, str]] = []
        """(path, Range header) of everything that was asked."""
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.server.daemon_threads = True

    @property
    def endpoint(self) -> str:
        """For MODELSCOPE_ENDPOINT."""
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def __enter__(self) -> Hub:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.server.shutdown()
        self.server.server_close()

    def repository(self, kind: str, owner: str, name: str, revision: str) -> Path | None:
        """ROOT/KIND/OWNER/NAME, or NAME@REVISION beside it for another revision than master."""
        place = self.root / kind / owner / (name if revision in ("", "master") else f"{name}@{revision}")
        return place if place.is_dir() else None

    def numbered(self, number: int) -> tuple[str, str] | None:
        """(owner, name) of the dataset of this number, which is how MsDataset asks for its files."""
        found = sorted(place for place in (self.root / "datasets").glob("*/*") if place.is_dir())
        return (found[number - 1].parent.name, found[number - 1].name) if 0 < number <= len(found) else None

    def number(self, owner: str, name: str) -> int:
        """The inverse of `numbered`; 1 for a model."""
        found = sorted(place for place in (self.root / "datasets").glob("*/*") if place.is_dir())
        place = self.root / "datasets" / owner / name
        return found.index(place) + 1 if place in found else 1


def _entries(hub: Hub, repository: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(repository.rglob("*")):
        place = path.relative_to(repository).as_posix()
        known = {"Name": path.name, "Path": place, "Revision": COMMIT, "CommittedDate": CREATED, "IsLFS": False,
                 "InCheck": False}
        if path.is_dir():
            yield {**known, "Type": "tree", "Size": 0, "Sha256": ""}
        else:
            digest = "0" * 64 if path.name in hub.lies else hashlib.sha256(path.read_bytes()).hexdigest()
            yield {**known, "Type": "blob", "Size": path.stat().st_size, "Sha256": digest, "Mode": "100644",
                   "Id": COMMIT, "CommitId": COMMIT}


def _handler(hub: Hub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *arguments: Any) -> None:
            """Nothing on stderr."""

        def do_GET(self) -> None:
            """Every request."""
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            hub.requests.append((self.path, self.headers.get("Range") or ""))
            if hub.hangs:
                threading.Event().wait(120)
                return
            query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
            self.route([unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")], query)

        do_HEAD = do_POST = do_PUT = do_GET

        def route(self, parts: list[str], query: dict[str, str]) -> None:
            if parts[-2:] == ["download", "increase"] or parts[-1] == "internalAccelerationInfo":
                return self.good({})
            if parts[:3] == ["api", "v1", "datasets"] and len(parts) > 3 and parts[3].isdigit():
                parts[3:4] = hub.numbered(int(parts[3])) or parts[3:4]
            open_api = parts[:2] == ["openapi", "v1"]
            if parts[:2] not in (["api", "v1"], ["openapi", "v1"]) or len(parts) < 5:
                return self.bad(404, "not found")
            kind, owner, name, rest = parts[2], parts[3], parts[4], parts[5:]
            repository = hub.repository(kind, owner, name, query.get("Revision", "") if rest else "")
            if repository is None:
                return self.bad(404, "repo not found")
            sent = (self.headers.get("Authorization") or "") + (self.headers.get("Cookie") or "")
            if f"{owner}/{name}" in hub.closed and hub.token not in sent:
                return self.bad(401, "authentication required")
            if open_api:
                return self.send({"success": True, "request_id": "r", "data": {
                    "id": f"{owner}/{name}", "name": name, "owner": owner, "private": False, "visibility": "public",
                    "created_at": "2024-01-01T00:00:00Z", "last_modified": "2024-01-01T00:00:00Z"}})
            if not rest:
                return self.good({"Id": hub.number(owner, name), "Name": name, "Namespace": owner, "Owner": owner,
                                  "Path": owner, "Type": 4, "Visibility": 5, "Revision": "master",
                                  "LastUpdatedTime": CREATED})
            if rest == ["revisions"]:
                known = [{"Revision": "master", "CreatedAt": CREATED}]
                return self.good({"RevisionMap": {"Branches": known, "Tags": []}})
            if rest in (["repo", "files"], ["repo", "tree"]):
                return self.listing(list(_entries(hub, repository)), query)
            file = (repository / query.get("FilePath", "")).resolve()
            if rest != ["repo"] or repository.resolve() not in file.parents or not file.is_file():
                return self.bad(404, "file not found")
            return self.file(file)

        def listing(self, entries: list[dict[str, Any]], query: dict[str, str]) -> None:
            root = query.get("Root", "").strip("/")
            entries = [entry for entry in entries if not root or entry["Path"].startswith(f"{root}/")]
            if query.get("Recursive", "True").lower() != "true":
                depth = len(root.split("/")) if root else 0
                entries = [entry for entry in entries if entry["Path"].count("/") == depth]
            if "PageNumber" in query:
                size = int(query["PageSize"])
                entries = entries[(int(query["PageNumber"]) - 1) * size :][:size]
            latest = {"CommittedDate": CREATED, **({"Id": COMMIT, "ShortId": COMMIT[:8]} if hub.names_commits else {})}
            self.good({"Files": entries, "IsVisual": 0, "LatestCommitter": latest})

        def file(self, path: Path) -> None:
            data = path.read_bytes()
            asked, first, last, code = self.headers.get("Range") or "", 0, len(data) - 1, 200
            if asked.startswith("bytes="):
                begin, _, end = asked[6:].partition("-")
                first, last, code = int(begin or 0), min(int(end), last) if end else last, 206
            self.send_response(code)
            part = data[first : last + 1]
            self.send_header("Content-Type", "application/octet-stream")
            self.send_header("Content-Length", str(len(part)))
            self.send_header("Accept-Ranges", "bytes")
            self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
            if code == 206:
                self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
            self.end_headers()
            if self.command == "HEAD":
                return
            if path.name in hub.cut and len(part) > CUT_AFTER:
                hub.cut.discard(path.name)
                self.wfile.write(part[:CUT_AFTER])
                self.wfile.flush()
                self.close_connection = True
                self.connection.close()
                return
            self.wfile.write(part)

        def good(self, data: Any) -> None:
            self.send({"Code": 200, "Success": True, "Message": "success", "RequestId": "r", "Data": data})

        def bad(self, status: int, message: str) -> None:
            self.send({"Code": NOT_FOUND if status == 404 else status, "Success": False, "Message": message,
                       "RequestId": "r", "Data": None}, status)

        def send(self, document: Any, status: int = 200) -> None:
            body = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler
