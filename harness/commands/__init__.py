"""One module per command of `python -m harness`: `add` declares its arguments, `run` answers with a JSON document."""
