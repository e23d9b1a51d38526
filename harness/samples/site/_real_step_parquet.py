"""Child: the first and the last row of a Parquet file, as JSON on a descriptor of its own.

The request is one JSON object on standard input: {path, result_fd}. Needs pyarrow and nothing of the harness.
"""

# mypy: ignore-errors

import json
import os
import sys


def main():
    request = json.load(sys.stdin)
    answer = {"rows": []}
    try:
        import pyarrow.parquet as parquet

        file = parquet.ParquetFile(request["path"])
        for group in sorted({0, file.num_row_groups - 1}):
            rows = file.read_row_group(group)
            for start in (0, rows.num_rows - 1):
                answer["rows"] += rows.slice(start, 1).to_pylist()
    except Exception as error:
        answer["problem"] = f"{type(error).__name__}: {error}"
    with os.fdopen(request["result_fd"], "w", encoding="utf-8") as result:
        result.write(json.dumps(answer, default=str) + "\n")


main()
