"""The command as a person types it, in a directory and an environment of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

CANARY = "correct-horse-battery"
"""A secret that no command may ever print."""


class Shell:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(directory),
            "DATABASE_URL": f"sqlite:///{directory}/herd.db",
        }

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "herdsman", *words],
            cwd=self.directory,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            timeout=60,
        )

    def said(self, *words: str) -> str:
        run = self(*words)
        assert run.returncode == 0, run.stdout + run.stderr
        return run.stdout

    def json(self, *words: str) -> dict[str, object]:
        return json.loads(self(*words, "-o", "json").stdout)

    def refused(self, *words: str, **environment: str) -> str:
        """The one sentence with which the command gives up."""
        run = self(*words, **environment)
        assert run.returncode != 0, run.stdout
        assert "Traceback" not in run.stderr
        assert CANARY not in run.stdout + run.stderr
        (sentence,) = run.stderr.strip().splitlines()
        return sentence
