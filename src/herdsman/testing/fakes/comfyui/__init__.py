"""A fake ComfyUI that plugin authors and users may test against: real HTTP, real sockets, every fault."""

from herdsman.testing.fakes.comfyui.faults import STEPS, Fault
from herdsman.testing.fakes.comfyui.nodes import CHECKPOINTS
from herdsman.testing.fakes.comfyui.prompts import Ledger, Render, RequestRecord, SentMessage
from herdsman.testing.fakes.comfyui.server import FakeComfyUI

__all__ = ["CHECKPOINTS", "STEPS", "FakeComfyUI", "Fault", "Ledger", "Render", "RequestRecord", "SentMessage"]
