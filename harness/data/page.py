"""Renders references/data-contracts.md from the rules themselves: every example row is judged while it is rendered.

`python -m harness.data.page references` writes it; a test holds the page to what this renders.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from harness.data.contracts import ALGORITHMS, judge_row
from harness.data.loaders import SHAPES
from harness.data.source import SUFFIXES
from harness.record.files import write_text

_USER = {"role": "user", "content": "2+2?"}
_CALL = {"role": "assistant", "content": None, "tool_calls": [
    {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]}
_RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4"}
_PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
EXAMPLES: dict[str, tuple[Any, ...]] = {
    "sft": (
        {"prompt": "2+2?", "response": "4"}, {"tokens": [5, 6, 7], "prompt_mask": [True, True, False]},
        {"prompt": "2+2?", "response": ""}, {"prompt": "2+2?", "response": None},
        {"tokens": [5, 6, 7], "prompt_mask": [True, True, True]}, {"tokens": [5, 6], "prompt_mask": [True]},
        {"prompt": ["2+2?"], "response": "4"}, {"instruction": "2+2?", "output": "4"}, ["2+2?", "4"],
    ),
    "dpo": (
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {"chosen": [_USER, {"role": "assistant", "content": "4"}],
         "rejected": [_USER, {"role": "assistant", "content": "5"}]},
        {"prompt": "2+2?", "chosen": "4", "rejected": "4"},
        {"chosen": [_USER], "rejected": [_USER]}, {"prompt": "2+2?", "chosen": "4"},
        {"prompt": "2+2?", "chosen": "4", "rejected": None}, {"chosen": "4", "rejected": "5"},
    ),
    "rollout": (
        {"prompt": "2+2?", "solutions": ["4"]}, {"tokens": [5, 6], "answer": "4"}, {"prompt": "2+2?"},
        {"question": "2+2?", "answer": "4"}, {"messages": [_USER], "answer": "4"}, {"prompt": None, "answer": "4"},
        {"prompt": [_USER], "answer": "4"}, {"prompt": "What is it?", "image_base64": "AAAA", "answer": "a cat"},
        {"messages": [{"role": "user", "content": [_PICTURE]}], "answer": "a cat"},
        {"prompt": "What is it?", "image_base64": "https://example.org/cat.png", "answer": "a cat"},
    ),
    "agentic": (
        {"prompt": "2+2?", "messages": [_USER, _CALL, _RESULT], "answer": "4"},
        {"prompt": "2+2?", "messages": [_USER, _RESULT, _CALL], "answer": "4"},
        {"prompt": "2+2?", "messages": [_USER, _CALL, {**_RESULT, "tool_call_id": "c2"}], "answer": "4"},
        {"prompt": "2+2?", "messages": [{"role": "robot", "content": "4"}], "answer": "4"},
    ),
}
"""Rows of each kind, good and bad."""


def render_contracts() -> str:
    """The page."""
    lines = [
        "# Data contracts", "",
        "What AReno does with a row of each algorithm. `fatal` stops the launch: AReno raises at such a row, or would "
        "learn what nobody meant. `skip`: AReno drops the row without a word; when every row is dropped nothing is "
        "launched. `warn`: AReno takes the row, and it teaches little. Where AReno is installed, its own functions are "
        "asked about every row that is looked at.", "",
        "`python -m harness inspect-dataset --dataset-path P --algo A [--loader FILE[:FN]]` looks at a dataset; the "
        "gate `dataset_contract` does the same before a launch. The loader runs in a child with the interpreter that "
        "trains, limited in time, memory and output.", "",
        f"Read are {', '.join(f'`{suffix}`' for suffix in SUFFIXES)}, directories of them, `save_to_disk` directories, "
        "and `OWNER/NAME[:SUBSET[:SPLIT]]` on ModelScope. AReno reads `.tsv` by commas: give a loader.", "",
    ]
    for kind, rows in EXAMPLES.items():
        names = ", ".join(f"`{name}`" for name, its in ALGORITHMS.items() if its == kind)
        lines += [f"## {kind} ({names})", "", "| row | verdict | why |", "| --- | --- | --- |"]
        for row in rows:
            found = judge_row(kind, row)
            text = json.dumps(row).replace("|", "\\|")
            lines.append(f"| `{text}` | {found.verdict.value} | {found.reason} |")
        lines.append("")
    lines += [
        "Beside these, AReno drops rows over the token limits: prompts over `--max-prompt-tokens` and responses over "
        "`--max-new-tokens` for SFT, pairs over the sum of both for DPO, prompts over `--max-prompt-tokens` for "
        "rollouts. They are counted with the tokenizer of a local `--ckpt`.", "",
        "## Loaders that are suggested", "",
        "GSM8K's `question` and `answer`: `examples/math/dataset_loader.py` of the AReno checkout where it is there. "
        "Else those that come with the harness, in `harness/fixtures/data/`:", "",
        "| algorithm | fields | loader |", "| --- | --- | --- |",
    ]
    for kind, shapes in SHAPES.items():
        lines += [f"| {kind} | {', '.join(f'`{field}`' for field in fields)} | `{name}` |" for fields, name in shapes]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    write_text(Path(sys.argv[1]) / "data-contracts.md", render_contracts())
