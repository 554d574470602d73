"""Finds the Herdsman of this machine, or the one that API_URL and API_TOKEN name."""

import json
import os
from pathlib import Path

from herdsman import Client


def client() -> Client:
    state = Path(os.environ.get("XDG_STATE_HOME", "~/.local/state")).expanduser() / "herdsman"
    url = os.environ.get("API_URL") or json.loads((state / "api").read_text())["url"]
    token = os.environ.get("API_TOKEN") or (state / "admin-token").read_text()
    return Client(url, token, agent="examples")
