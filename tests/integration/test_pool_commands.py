"""`herdsman pool`, as a person types it."""

from tests.support.shell import Shell


def test_a_pool_from_its_start_to_its_end(shell: Shell) -> None:
    assert "herdsman pool create" in shell.said("pool", "list")
    made = shell.said("pool", "create", "llm", "--model", "org/m", "-w", "2", "--preload", "org/e")
    assert made.splitlines() == [
        "pool llm is starting (created), for default",
        "workers: none; 2 wanted, 0 jobs queued",
        "serves org/m, revision 1",
    ]
    assert "llm" in shell.said("pool", "list")
    assert shell.json("pool", "scale", "llm", "4")["desired_workers"] == 4
    assert shell.json("pool", "swap", "llm", "--variant", "fp16")["revision"] == 2
    assert shell.json("pool", "swap", "llm", "--variant", "none")["variant"] is None
    assert shell.json("pool", "show", "llm")["preload"] == ["org/e"]
    assert shell.json("pool", "drain", "llm")["status"] == "draining"
    assert shell.json("pool", "evict", "llm", "--yes")["status"] == "evicted"


def test_hours_are_written_in_one_line(shell: Shell) -> None:
    window = "mon-fri 08:00-18:00 Europe/Berlin min=2 max=4"
    (read,) = shell.json("pool", "create", "office", "--schedule", window)["schedule"]  # type: ignore[misc]
    assert read == {
        "days": "mon,tue,wed,thu,fri",
        "from": "08:00",
        "to": "18:00",
        "timezone": "Europe/Berlin",
        "min": 2,
        "max": 4,
    }
    assert "write it as" in shell.refused("pool", "create", "office", "--schedule", "always")


def test_what_cannot_be_is_one_sentence(shell: Shell) -> None:
    assert "there is no pool 'none'" in shell.refused("pool", "show", "none")
    assert "is one of the settings" in shell.refused("pool", "create", "default")
    assert "hold_seconds" in shell.refused("pool", "create", "llm", "--hold", "0")
