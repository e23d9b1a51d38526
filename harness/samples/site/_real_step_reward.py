"""Child: AReno's own loader of a reward function, which is called twice on a recorded sample.

The request is one JSON object on standard input: {reward, record, result_fd}; the answer {values} or {problem}.
It runs in the trainer's interpreter and needs AReno there, whose record the function is given.
"""

# mypy: ignore-errors

import json
import math
import os
import sys


def main():
    request = json.load(sys.stdin)
    answer = {}
    try:
        from areno.api.rewards import RewardRecord, load_reward_fn

        reward = load_reward_fn(request["reward"])
        values = [float(reward(RewardRecord(**request["record"]))) for _ in range(2)]
        answer["values"] = [value if math.isfinite(value) else repr(value) for value in values]
    except BaseException as error:
        answer["problem"] = f"{type(error).__name__}: {error}"[:500]
    with os.fdopen(request["result_fd"], "w", encoding="utf-8") as result:
        result.write(json.dumps(answer) + "\n")


main()
