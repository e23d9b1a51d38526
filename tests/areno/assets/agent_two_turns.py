"""An agent for AReno (`--agent-fn`) in an environment of two turns: a sum, then the same one asked the other way round.

The environment is a class of its own, so that the agent only carries messages to and fro.
"""

from __future__ import annotations

import asyncio
from typing import Any


class TwoSums:
    """Asks `left` plus `right`, then `right` plus `left`; done after two answers."""

    def __init__(self, record: dict[str, Any]) -> None:
        self.left, self.right = int(record["left"]), int(record["right"])
        self.answers: list[str] = []

    def question(self) -> str:
        """What the user says next."""
        first, second = (self.left, self.right) if not self.answers else (self.right, self.left)
        return f"what is {first} plus {second}?"

    def answer(self, text: str) -> None:
        """The model's turn."""
        self.answers.append(text)

    @property
    def is_done(self) -> bool:
        """Whether both were answered."""
        return len(self.answers) >= 2


async def run_agent(ctx: Any, batch: Any) -> Any:
    """Play every sample of the batch at once and give all turns back."""
    from openai import AsyncOpenAI

    async with AsyncOpenAI(base_url=ctx.get_base_url(), api_key=ctx.api_key, max_retries=0) as client:
        played = await asyncio.gather(*(_play(client, item) for item in batch.iter_samples()))
    from areno.api.agentic import AgentTrajectory

    return AgentTrajectory(turns=[turn for turns in played for turn in turns])


async def _play(client: Any, item: Any) -> list[Any]:
    from areno.api.agentic import AgentTrajectoryTurn

    environment, messages, turns = TwoSums(item.record), [], []
    while not environment.is_done:
        messages.append({"role": "user", "content": environment.question()})
        response = await client.chat.completions.create(model="policy", messages=messages)
        turns.append(AgentTrajectoryTurn(item=item, messages=list(messages), response=response))
        text = response.choices[0].message.content or ""
        messages.append({"role": "assistant", "content": text})
        environment.answer(text)
    return turns
