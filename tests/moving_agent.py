"""An agent that carries six parcels, and may be killed on the way: a real graph with a scripted model.

    python moving_agent.py WHERE DIE_AT

WHERE has the arguments of RecallResume that say where the records are, as JSON; DIE_AT is the parcel at which the
process kills itself, 0 for none. Everything else that it knows is in its working directory, or in the records.
"""

import json
import os
import re
import signal
import sys
import warnings
from pathlib import Path
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.prebuilt import create_react_agent
from recall_langgraph import RecallResume

PARCELS = 6
MANIFEST = "parcel manifest\n" * 2_000


class Carrier(BaseChatModel):
    """Knows what was carried from its input alone, and calls for the next parcel."""

    @property
    def _llm_type(self) -> str:
        return "carrier"

    def bind_tools(self, tools: Any, **kwargs: Any) -> "Carrier":
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        known = "\n".join(str(message.content) for message in messages)
        carried = {int(number) for number in re.findall(r"carried parcel (\d)", known)}
        left = [number for number in range(1, PARCELS + 1) if number not in carried]
        reply = AIMessage("All six are there.")
        if left:
            call = {"id": f"{os.getpid()}-{left[0]}", "name": "carry", "args": {"parcel": left[0]}}
            reply = AIMessage("", tool_calls=[call])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def main(where: dict[str, str], die_at: int) -> None:
    """Carry what is left, and say what was found."""

    @tool
    def carry(parcel: int) -> str:
        """Carry one parcel."""
        if parcel == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        with Path("carried").open("a") as file:
            file.write(f"{parcel}\n")
        return f"carried parcel {parcel}"

    with RecallResume("mover", lease_ttl=5, wait=60, **where) as resume:
        context = resume.context
        found = {
            "fresh": context.fresh, "epoch": context.epoch, "goal": context.working_state.goal,
            "pins": [pin.text for pin in context.pins], "unanswered": [call.args for call in context.unanswered_calls],
            "manifests": [resume.agent.fetch_output(output.ref).decode() == MANIFEST for output in context.outputs],
        }  # fmt: skip
        if context.fresh:
            resume.agent.update_working_state(goal="Carry six parcels.")
            resume.agent.pin("Never carry a parcel twice.")
            resume.agent.store_output(MANIFEST, name="manifest")
        hooks = {"pre_model_hook": resume.pre_model_hook, "post_model_hook": resume.post_model_hook}
        graph = create_react_agent(Carrier(), [carry], **hooks)
        state = graph.invoke({"messages": [("user", "Go on.")]})
        found["said"] = state["messages"][-1].content
    print(json.dumps(found))


if __name__ == "__main__":
    warnings.filterwarnings("ignore", "create_react_agent has been moved")
    main(json.loads(sys.argv[1]), int(sys.argv[2]))
