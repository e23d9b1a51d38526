"""Reading TensorBoard scalars: the collector into metrics.db against other readers, in one run.

    python benchmarks/read_scalars.py [--points 300000 1000000] [--repeats 3] [--keep DIR]

Every reading is an interpreter of its own over the same file (ten tags), in turns; warm page cache, imports
not counted. Ours checks every CRC, keeps the digest of what it read, writes SQLite and builds its index.
EventAccumulator and tbparse keep the points in memory and check CRCs. RustBoard runs with --checksum; its
start and reading every point back over gRPC are counted. First it is checked that all give the same points: a
digest over tag, step and value. Printed are the median, its ratio to EventAccumulator, and how far the peak
of memory rose while reading: with ours that is all it needs, with the others the points are in it. Then the
cost of a poll after all that: seconds, and bytes read for each byte that was appended. tbparse is optional
(pip install tbparse); so is the data server of TensorBoard.
"""

from __future__ import annotations

import argparse
import array
import hashlib
import importlib.util
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

TAGS = (
    "train/loss", "train/lr", "train/grad_norm", "train/epoch", "perf/tokens_per_second", "perf/step_time",
    "rollout/rewards_mean", "rollout/kl", "eval/loss", "eval/accuracy",
)  # fmt: skip
EPOCH = 1_770_000_000.0
READERS = ("ours", "event_accumulator", "rustboard", "tbparse")
Series = dict[str, tuple[Iterable[int], Iterable[float]]]


def generate(folder: Path, points: int) -> Path:
    """An event file with as many scalars, ten tags a step, as SummaryWriter writes them."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    path = folder / f"run-{points}" / "events.out.tfevents.1770000000.bench.1.0"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name("unfinished")
        with unfinished.open("wb") as file:
            writer = RecordWriter(file)
            for step in range(points // len(TAGS)):
                append_step(writer, step)
        unfinished.replace(path)
    return path


def append_step(writer: Any, step: int) -> None:
    """One step of every tag."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary

    for index, tag in enumerate(TAGS):
        value = Summary.Value(tag=tag, simple_value=index + 1.0 / (step + 1))
        event = Event(wall_time=EPOCH + step + index * 1e-3, step=step, summary=Summary(value=[value]))
        writer.write(event.SerializeToString())


def digest(series: Series) -> str:
    """Over tag, step and value of every point."""
    total = hashlib.sha256()
    for tag in sorted(series):
        steps, values = series[tag]
        total.update(tag.encode())
        total.update(array.array("q", steps).tobytes())
        total.update(array.array("d", values).tobytes())
    return total.hexdigest()


def read_ours(path: Path) -> tuple[Callable[[], object], Callable[[], Series]]:
    """The collector, as the supervisor uses it."""
    import google_crc32c  # noqa: F401
    import numpy  # noqa: F401
    import tensorboard.compat.proto.event_pb2  # noqa: F401

    from harness.metrics.collector import MetricCollector
    from harness.record.store import MetricStore

    folder = tempfile.TemporaryDirectory()
    store = MetricStore.create(Path(folder.name) / "metrics.db")
    collector = MetricCollector(store, [path.parent])

    def points() -> Series:
        series = {tag: store.series(tag) for tag in TAGS}
        folder.cleanup()
        return {tag: ([p.step for p in found], [p.value for p in found]) for tag, found in series.items()}

    return lambda: collector.finish(now=EPOCH, launched_at=EPOCH), points


def read_event_accumulator(path: Path) -> tuple[Callable[[], object], Callable[[], Series]]:
    """TensorBoard's own reader, told to keep every point."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(path.parent), size_guidance={"scalars": 0})

    def points() -> Series:
        found = {tag: accumulator.Scalars(tag) for tag in accumulator.Tags()["scalars"]}
        return {tag: ([e.step for e in events], [e.value for e in events]) for tag, events in found.items()}

    return accumulator.Reload, points


def read_tbparse(path: Path) -> tuple[Callable[[], object], Callable[[], Series]]:
    """tbparse into a data frame."""
    from tbparse import SummaryReader

    frames: list[Any] = []

    def points() -> Series:
        return {
            str(tag): (part["step"].tolist(), part["value"].tolist())
            for tag, part in frames[0].groupby("tag")
        }

    return lambda: frames.append(SummaryReader(str(path.parent)).scalars), points


def read_rustboard(path: Path) -> tuple[Callable[[], object], Callable[[], Series]]:
    """The data server, then every point back over gRPC."""
    from tensorboard import context
    from tensorboard.data import server_ingester
    from tensorboard.util.grpc_util import ChannelCredsType

    found: Series = {}
    expected = int(path.parent.name.rpartition("-")[2]) // len(TAGS)

    def read() -> None:
        ingester = server_ingester.SubprocessServerDataIngester(
            server_ingester.get_server_binary(), str(path.parent), reload_interval=5,
            channel_creds_type=ChannelCredsType.LOCAL, samples_per_plugin={"scalars": 0},
            extra_flags=["--checksum"],
        )  # fmt: skip
        ingester.start()
        provider, where = ingester.data_provider, context.RequestContext()
        while len(found) < len(TAGS):
            listed = provider.list_scalars(where, experiment_id="", plugin_name="scalars")
            tags = next(iter(listed.values()), {})
            if len(tags) == len(TAGS) and all(item.max_step == expected - 1 for item in tags.values()):
                for tag in TAGS:
                    found[tag] = _read_back(provider, where, tag)
            else:
                time.sleep(0.01)

    return read, lambda: found


def _read_back(provider: Any, where: Any, tag: str) -> tuple[list[int], list[float]]:
    from tensorboard.data.provider import RunTagFilter

    answer = provider.read_scalars(where, experiment_id="", plugin_name="scalars", downsample=1 << 30,
                                   run_tag_filter=RunTagFilter(tags=[tag]))  # fmt: skip
    points = next(iter(answer.values()))[tag]
    return [point.step for point in points], [point.value for point in points]


def is_there(name: str) -> str:
    """'' where a reader can be used, else why not."""
    module = {"tbparse": "tbparse", "rustboard": "tensorboard_data_server"}.get(name, "tensorboard")
    return "" if importlib.util.find_spec(module) else f"{module} is not installed (pip install {module})"


def child(name: str, path: Path) -> None:
    """One reading in this process; prints what it took as JSON."""
    read, points = globals()[f"read_{name}"](path)
    before = reset_peak_kb()
    began = time.perf_counter()
    read()
    seconds = time.perf_counter() - began
    risen = peak_kb() - before
    if name == "rustboard":
        risen += resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(json.dumps({"seconds": seconds, "risen_kb": risen, "digest": digest(points())}))


def reset_peak_kb() -> int:
    """Forget the peak of memory so far (proc(5), clear_refs); the memory in use now."""
    if Path("/proc/self/clear_refs").exists():
        Path("/proc/self/clear_refs").write_text("5")
    return peak_kb()


def peak_kb() -> int:
    """Peak of resident memory since the reset. getrusage would begin with the parent's at the fork."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def measure(name: str, path: Path) -> dict[str, Any]:
    """One reading in a fresh interpreter."""
    done = subprocess.run([sys.executable, __file__, "--child", name, str(path)], check=False, text=True,
                          capture_output=True)  # fmt: skip
    if done.returncode:
        raise SystemExit(f"{name} failed:\n{done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def compare(path: Path, repeats: int) -> None:
    """The table for one file."""
    names = [name for name in READERS if not is_there(name)]
    digest_of_file(path)  # into the page cache
    results: dict[str, list[dict[str, Any]]] = {name: [measure(name, path)] for name in names}
    digests = {name: found[0]["digest"] for name, found in results.items()}
    if len(set(digests.values())) != 1:
        raise SystemExit(f"not the same points: {digests}")
    for _ in range(repeats - 1):
        for name in names:
            results[name].append(measure(name, path))
    base = statistics.median(item["seconds"] for item in results["event_accumulator"])
    print(
        f"{path.parent.name}: {path.stat().st_size / 1e6:.0f} MB, the same points by all ({digests['ours'][:12]})"
    )
    print(f"  {'reader':20}{'median s':>10}{'of EventAccumulator':>22}{'memory +MB':>12}")
    for name, found in results.items():
        seconds = statistics.median(item["seconds"] for item in found)
        risen = max(item["risen_kb"] for item in found) / 1024
        print(f"  {name:20}{seconds:>10.2f}{seconds / base:>22.3f}{risen:>12.0f}")


def digest_of_file(path: Path) -> str:
    """Reads all of a file without keeping it."""
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            total.update(block)
    return total.hexdigest()


def polls(path: Path, folder: Path) -> None:
    """What a poll costs once the file is large."""
    from tensorboard.summary.writer.record_writer import RecordWriter

    from harness.metrics.collector import MetricCollector
    from harness.record.store import MetricStore

    copy = folder / "grows" / path.name
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    with MetricStore.create(folder / "metrics.db") as store:
        collector = MetricCollector(store, [copy.parent])
        collector.poll(now=EPOCH, launched_at=EPOCH)
        step = 10_000_000
        print(f"polls after {path.parent.name}:")
        for records in (0, 10, 1000, 10_000):
            before = copy.stat().st_size
            with copy.open("ab") as file:
                writer = RecordWriter(file)
                for _ in range(records // len(TAGS)):
                    append_step(writer, step)
                    step += 1
            read, began = bytes_read(), time.perf_counter()
            count = collector.poll(now=EPOCH, launched_at=EPOCH)
            seconds, read = time.perf_counter() - began, bytes_read() - read
            assert count == records
            print(
                f"  {records:>6} new records, {copy.stat().st_size - before:>7} new bytes:"
                f" {seconds * 1e3:7.2f} ms, "
                f"{read} bytes read from files"
            )


def bytes_read() -> int:
    """What this process has read by system calls so far, the database included; 0 where the system does not
    say."""
    status = Path("/proc/self/io")
    return int(status.read_text().split("rchar: ")[1].split()[0]) if status.exists() else 0


def main() -> None:
    """See the module's docstring."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, nargs="+", default=[300_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "read-scalars-benchmark",
                        help="directory that keeps the generated files (default: %(default)s)")  # fmt: skip
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    for name in READERS:
        if reason := is_there(name):
            print(f"{name} is left out: {reason}")
    for points in options.points:
        compare(generate(options.keep, points), options.repeats)
    with tempfile.TemporaryDirectory() as folder:
        polls(generate(options.keep, max(options.points)), Path(folder))


if __name__ == "__main__":
    main()
