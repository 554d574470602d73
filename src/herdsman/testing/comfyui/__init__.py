"""A fake ComfyUI that plugin authors and users may test against: real HTTP, real sockets, every fault."""

from herdsman.testing.comfyui.faults import STEPS, Fault
from herdsman.testing.comfyui.ledger import Asked, Ledger, Render, Said
from herdsman.testing.comfyui.nodes import CHECKPOINTS
from herdsman.testing.comfyui.server import FakeComfyUI, serve

__all__ = ["CHECKPOINTS", "STEPS", "Asked", "FakeComfyUI", "Fault", "Ledger", "Render", "Said", "serve"]
