"""Prometheus itself reads what we show, and each alert of ours fires when it should and is silent when it should."""

import json
import subprocess
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

import httpx
import pytest

from herdsman.loops import Heartbeat
from herdsman.worker.heartbeat import WorkerProbes
from tests.integration.test_two_replicas import SETTINGS, start_replica, until
from tests.support.databases import make_schema
from tests.support.servers.postgres import PostgresServer
from tests.support.servers.server import HOST, PrivateServer, free_port, program
from tests.support.shell import Shell
from tests.unit.loops.doubles import ask
from tests.unit.test_deploy_files import DEPLOY, read

MINUTES = 30
MANY = 390
"""Longer than the longest `for`."""
A, B = 'up{job="herdsman",instance="a"}', 'up{job="herdsman",instance="b"}'
FAULTS, REJECTED = (
    'herdsman_stream_events_total{event="faults"}',
    'herdsman_admission_total{decision="rejected"}',
)
DEAD = 'herdsman_jobs_ended_last_hour{status="dead_letter"}'
LEADER, CYCLE, LOST, WRITABLE = (
    'herdsman_leader{instance="a"}',
    'herdsman_cycle_age_seconds{instance="a"}',
    'herdsman_database_up{instance="b"}',
    'herdsman_database_writable{instance="a"}',
)
WELL: Mapping[str, float] = {
    A: 1,
    B: 1,
    LEADER: 1,
    'herdsman_leader{instance="b"}': 0,
    CYCLE: 300,
    'herdsman_database_up{instance="a"}': 1,
    LOST: 1,
    WRITABLE: 1,
    DEAD: 20,
    "herdsman_claims_overdue": 0,
    "herdsman_stream_pending": 200,
    "herdsman_leases_expired_last_hour": 20,
    "herdsman_gpus_quarantined": 0,
    "herdsman_queue_oldest_seconds": 900,
    "herdsman_holds": 0,
    "gpu_orchestrator_worker_pools_total": 20,
    FAULTS: 5,
    REJECTED: 50,
}
"""Just before any of them would fire. Counters by how much they rise each minute."""

ILL: Mapping[str, Mapping[str, float]] = {
    "HerdsmanReplicaDown": {B: 0},
    "HerdsmanNoLeader": {LEADER: 0},
    "HerdsmanControlLoopStands": {CYCLE: 301},
    "HerdsmanDatabaseAway": {LOST: 0},
    "HerdsmanDatabaseRefusesWrites": {WRITABLE: 0},
    "HerdsmanDeadLetterSpike": {DEAD: 21},
    "HerdsmanReclaimerFails": {"herdsman_claims_overdue": 1},
    "HerdsmanStreamFaults": {FAULTS: 12},
    "HerdsmanStreamPending": {"herdsman_stream_pending": 201},
    "HerdsmanLeaseExpirySpike": {"herdsman_leases_expired_last_hour": 21},
    "HerdsmanGpuQuarantined": {"herdsman_gpus_quarantined": 1},
    "HerdsmanOldestWait": {"herdsman_queue_oldest_seconds": 901},
    "HerdsmanHeldForLong": {"herdsman_queue_oldest_seconds": 901, "herdsman_holds": 1},
    "HerdsmanManyPools": {"gpu_orchestrator_worker_pools_total": 21},
    "HerdsmanRefusals": {REJECTED: 90},
}
"""What is shown then, and nothing else fires."""
BY_REPLICA: Mapping[str, str] = {"HerdsmanReplicaDown": "b", "HerdsmanDatabaseAway": "b"}
ALL_GONE = frozenset(
    {
        "HerdsmanDown",
        "HerdsmanReplicaDown",
        "HerdsmanNoLeader",
        "HerdsmanControlLoopStands",
        "HerdsmanDatabaseAway",
    }
)


def alerts() -> dict[str, Any]:
    (group,) = read("prometheus/rules.yaml")["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


def promtool(*words: str, given: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program("promtool"), *words], input=given, capture_output=True, text=True, check=False, timeout=120
    )


def series(shown: Mapping[str, float], minutes: int = MINUTES) -> list[dict[str, str]]:
    return [
        {
            "series": name,
            "values": f"0+{value}x{minutes}" if name in (FAULTS, REJECTED) else f"{value}+0x{minutes}",
        }
        for name, value in shown.items()
    ]


def vanishing() -> list[dict[str, str]]:
    """Both replicas are gone after ten minutes: Prometheus then marks all of their series as stale."""
    return [
        {"series": name, "values": f"1+0x10 0+0x{MINUTES}" if name in (A, B) else f"{value}+0x10 stale"}
        for name, value in WELL.items()
    ]


def expected(alert: str, *instances: str) -> list[dict[str, Any]]:
    rule = alerts()[alert]
    return [
        {
            "exp_labels": {"severity": rule["labels"]["severity"], **_of(instance, alert)},
            "exp_annotations": {
                name: text.replace("{{ $labels.instance }}", instance) for name, text in rule["annotations"].items()
            },
        }
        for instance in instances
    ]


def _of(instance: str, alert: str) -> dict[str, str]:
    job = {"job": "herdsman"} if alert == "HerdsmanReplicaDown" else {}
    return {**job, "instance": instance} if instance else {}


def case(shown: list[dict[str, str]], firing: Mapping[str, tuple[str, ...]], minutes: int = MINUTES) -> dict[str, Any]:
    """`firing` names the alerts, each with the replicas that it names; all others have to be silent."""
    return {
        "interval": "1m",
        "input_series": shown,
        "alert_rule_test": [
            {
                "eval_time": f"{minutes}m",
                "alertname": alert,
                "exp_alerts": expected(alert, *firing.get(alert, ())),
            }
            for alert in alerts()
        ],
    }


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path) -> None:
    assert {"HerdsmanDown", *ILL} == set(alerts())
    gone = {alert: ("a", "b") if alert == "HerdsmanReplicaDown" else ("",) for alert in ALL_GONE}
    cases = [
        case(series(WELL), {}),
        case(vanishing(), gone),
        case([], gone | {"HerdsmanReplicaDown": ()}),
        *(
            case(series({**WELL, **shown}, long), {alert: (BY_REPLICA.get(alert, ""),)}, long)
            for alert, shown in ILL.items()
            for long in [MANY if "h" in alerts()[alert]["for"] else MINUTES]
        ),
    ]
    tests = tmp_path / "tests.json"  # which is YAML as well
    rules = str(DEPLOY / "prometheus" / "rules.yaml")
    tests.write_text(json.dumps({"rule_files": [rules], "evaluation_interval": "1m", "tests": cases}))
    done = promtool("test", "rules", str(tests))
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_page_of_a_worker_is_one_that_prometheus_takes(tmp_path: Path) -> None:
    signs = WorkerProbes(
        threshold=60,
        interval=1,
        readiness=10,
        crash_dir=tmp_path,
        address=(HOST, free_port()),
        keeper=Heartbeat(),
        say=lambda _: None,
    )
    with signs.shown(lambda: True):
        page = ask(signs.address, "/metrics").text
    done = promtool("check", "metrics", given=page)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "wink_health_ready 1" in page


class Prometheus(PrivateServer):
    program: ClassVar[str] = "prometheus"

    def __init__(self, directory: Path, target: str, token: str) -> None:
        super().__init__(directory)
        rules = (DEPLOY / "prometheus" / "rules.yaml").read_text(encoding="utf-8")
        # The alerts as they are, but for how long each waits.
        quick = [f"{line.partition('for:')[0]}for: 1s" if " for: " in line else line for line in rules.splitlines()]
        (directory / "rules.yaml").write_text("\n".join(quick))
        (directory / "prometheus.yml").write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(directory / "rules.yaml")],
                    "scrape_configs": [
                        {
                            "job_name": "herdsman",
                            "scrape_timeout": "1s",
                            "authorization": {"credentials": token},
                            "static_configs": [{"targets": [target]}],
                        }
                    ],
                }
            )
        )

    def ask(self, path: str, **query: str) -> Any:
        answer = httpx.get(f"http://{HOST}:{self.port}/api/v1/{path}", params=query, timeout=10)
        assert answer.json()["status"] == "success", answer.text
        return answer.json()["data"]

    def value(self, query: str) -> float | None:
        found = self.ask("query", query=query)["result"]
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> set[str]:
        return {each["labels"]["alertname"] for each in self.ask("alerts")["alerts"] if each["state"] == "firing"}

    def _answers(self) -> bool:
        try:
            return httpx.get(f"http://{HOST}:{self.port}/-/ready", timeout=5).status_code == 200
        except httpx.TransportError:
            return False

    def _prepare(self) -> None:
        """It fills its directory by itself."""

    def _command(self) -> list[str]:
        return [
            program("prometheus"),
            f"--config.file={self.home.path / 'prometheus.yml'}",
            f"--storage.tsdb.path={self.home.data}",
            f"--web.listen-address={HOST}:{self.port}",
            "--log.level=warn",
        ]


@pytest.fixture
def ended() -> Any:
    with ExitStack() as stack:
        yield stack


def test_an_outage_of_the_database_and_the_end_of_all_replicas_are_noticed(tmp_path: Path, ended: ExitStack) -> None:
    """The token of Prometheus was verified before the outage; it is asked for again while nobody can look it up."""
    database = ended.enter_context(PostgresServer())
    database.create_database("herd")
    make_schema(database.url("herd"))
    shell = Shell(tmp_path)
    quick = {"ORCHESTRATOR_POLL_SEC": "1", "LEADER_TTL_SEC": "4", "LEADER_RENEW_SEC": "1"}
    shell.environment |= {**SETTINGS, **quick, "DATABASE_URL": database.url("herd")}
    replica = start_replica(shell, tmp_path / "printed", ended)
    made = replica.post("/tokens", {"role": "metrics", "name": "prometheus"}).json()["token"]
    watching = ended.enter_context(Prometheus(tmp_path / "prometheus", replica.url.removeprefix("http://"), made))

    until(lambda: watching.value("herdsman_leader") == 1, "a leader in Prometheus")
    until(lambda: not watching.firing(), "no alert while all is well")
    said = promtool("check", "metrics", given=replica.page("/metrics")).stderr.splitlines()
    # The name is that of an older orchestrator, which dashboards know.
    assert [line for line in said if "worker_pools_total" not in line] == []

    database.kill()
    until(lambda: {"HerdsmanDatabaseAway", "HerdsmanNoLeader"} <= watching.firing(), "the outage is noticed")
    assert watching.value('up{job="herdsman"}') == 1
    assert watching.value("herdsman_requests_total") is not None
    assert "HerdsmanDown" not in watching.firing()

    database.start()
    until(lambda: not watching.firing(), "no alert when it is back")

    replica.process.kill()
    replica.process.wait()
    until(lambda: watching.firing() >= ALL_GONE, "the end of the only replica is noticed")
