"""What is wrong with the options is said before anything is asked of Runpod."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from herdsman.errors import InvalidSettings, ProviderRejected
from herdsman.providers import registry
from herdsman.providers.runpod import RunpodProvider, render_startup
from herdsman.settings import load_settings
from herdsman.testing.clocks import ManualClock
from tests.support.runpod import A40, KEY, L4, NAMING, a_request, some_options

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no GPU type": ({"gpu_types": ()}, "at least one GPU type"),
    "no image": ({"image": None}, "an image or a template"),
    "no GPU": ({"gpu_count": 0}, "0 GPUs"),
    "no disk": ({"container_disk_gb": 0}, "a disk of 0 GB"),
    "no deployment": ({"deployment": ""}, "deployment id"),
    "an ambiguous deployment": ({"deployment": "a--b"}, "deployment id"),
    "an ambiguous prefix": ({"name_prefix": "gpu-"}, "prefix"),
    "a volume elsewhere": ({"volumes": ("v",), "cloud": "COMMUNITY"}, "secure cloud only"),
    "a small volume": ({"local_volume_gb": 9}, "at least 10 GB"),
    "a relative path": ({"mount_path": "workspace"}, "must begin with /"),
    "another protocol": ({"api_url": "ftp://x"}, "URL of Runpod's API"),
    "a password in the URL": ({"api_url": f"https://u:{KEY}@api.example/v2"}, "URL of Runpod's API"),
    "an empty key": ({"api_key": SecretStr("")}, "key of the Runpod account"),
    "a key with a line break": ({"api_key": SecretStr(f"{KEY}\n")}, "key of the Runpod account"),
}


@pytest.mark.parametrize(("wanted", "said"), WRONG.values(), ids=WRONG.keys())
def test_wrong_options_are_refused(wanted: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said) as refused:
        some_options(**wanted)
    assert KEY not in str(refused.value)


@pytest.mark.parametrize(
    "name",
    [
        "SUPABASE_SERVICE_ROLE_KEY",
        "HERDSMAN_SUPABASE_SERVICE_ROLE_KEY_FILE",
        "RUNPOD_API_KEY",
        "MY_RUNPOD_API_KEY",
        "DATABASE_URL",
        "database_url",
        "ADMIN_API_KEY",
    ],
)
def test_no_secret_of_the_control_plane_goes_to_a_pod(name: str) -> None:
    with pytest.raises(InvalidSettings, match=f"a pod would get {name}, which belongs to the control plane"):
        some_options(environment={name: SecretStr("x")})
    with pytest.raises(ProviderRejected, match=name):
        created(some_options(), **{name: "x"})


def test_the_key_goes_to_no_pod_under_any_name() -> None:
    with pytest.raises(InvalidSettings, match="the key of the Runpod account as HF_TOKEN") as refused:
        some_options(environment={"HF_TOKEN": SecretStr(f"Bearer {KEY}")})
    assert KEY not in str(refused.value)
    with pytest.raises(ProviderRejected, match="HF_TOKEN"):
        created(some_options(), HF_TOKEN=KEY)


def test_a_pod_takes_fifty_variables() -> None:
    extras = {f"V{number}": SecretStr("x") for number in range(50)}
    with pytest.raises(InvalidSettings, match="51 variables"):
        some_options(environment={**extras, "ONE_MORE": SecretStr("x")})
    with pytest.raises(ProviderRejected, match="51 variables"):
        created(some_options(environment=extras), ONE_MORE="x")
    assert len(created(some_options(environment=extras), V0="y")["env"]) == 50


def test_the_worker_has_the_last_word_on_its_environment() -> None:
    options = some_options(environment={"A": SecretStr("extra"), "B": SecretStr("extra")})
    assert created(options, A="asked")["env"] == {"A": "asked", "B": "extra"}


def test_a_name_that_would_not_be_known_again_is_never_used() -> None:
    provider = RunpodProvider(some_options(), ManualClock(), transport=httpx.MockTransport(never))
    with pytest.raises(ProviderRejected, match="not a name that this deployment would know again"):
        provider.spawn(a_request("gpu--other--w1"))


def test_a_body_holds_what_was_asked_for_and_nothing_else() -> None:
    assert created(some_options()) == {
        "name": NAMING.name("w1"),
        "image": "herdsman/worker:1",
        "cloud": "SECURE",
        "gpu": {"id": L4, "count": 1},
        "disk": 20,
    }
    everything = some_options(
        image=None,
        template_id="a1b2c3d4e5",
        gpu_types=(A40,),
        gpu_count=2,
        cloud="COMMUNITY",
        data_centers=("EU-RO-1",),
        min_cuda="12.8",
        min_vcpus=8,
        memory_tiers_gb=(72,),
        local_volume_gb=50,
        mount_path="/data",
        ports=("22/tcp",),
        start_command=("herdsman", "worker"),
    )
    assert created(everything) == {
        "name": NAMING.name("w1"),
        "templateId": "a1b2c3d4e5",
        "cloud": "COMMUNITY",
        "gpu": {"id": A40, "count": 2, "minCudaVersion": "12.8", "minRamPerGpu": 72, "minVcpuCountPerGpu": 8},
        "disk": 20,
        "dataCenterIds": ["EU-RO-1"],
        "mounts": {"persistent": {"size": 50, "path": "/data"}},
        "ports": ["22/tcp"],
        "cmd": ["bash", "-c", "cd /data && exec herdsman worker"],
    }


def test_the_script_enters_the_volume_activates_and_starts() -> None:
    options = some_options(
        volumes=("models",),
        mount_path="/my volume",
        activation=("source venv/bin/activate", "export A='b c'"),
        start_command="python worker.py && echo done",
    )
    script = "cd '/my volume' &&\nsource venv/bin/activate &&\nexport A='b c' &&\npython worker.py && echo done"
    assert render_startup(options) == script


def test_a_command_line_becomes_one_argument_of_a_shell() -> None:
    assert created(some_options(start_command="python 'my worker.py' | tee log"))["args"] == (
        """bash -c 'python '"'"'my worker.py'"'"' | tee log'"""
    )


def test_a_program_with_its_arguments_is_started_as_it_is() -> None:
    assert created(some_options(start_command=("python", "my worker.py")))["cmd"] == [
        "python",
        "my worker.py",
    ]
    assert render_startup(some_options(start_command=("python", "my worker.py"))) == "exec python 'my worker.py'"


def test_without_a_start_command_none_is_sent() -> None:
    options = some_options(activation=("source venv/bin/activate",), local_volume_gb=50)
    assert not {"args", "cmd", "entrypoint"} & set(created(options))
    assert render_startup(options) == ""


@pytest.mark.parametrize("label", ["a--b", "A", "a-", "", "a" * 41])
def test_a_deployment_id_is_refused_where_it_is_typed(label: str) -> None:
    try:
        load_settings({"DEPLOYMENT_ID": label}, Path("/nonexistent"))
    except InvalidSettings as refused:
        assert str(refused).startswith("DEPLOYMENT_ID must be small letters and digits")
    else:
        assert label == "", "a variable that is set to nothing counts as not set"


def test_it_is_found_by_its_name() -> None:
    opened = registry.find("runpod")(
        {"api_key": SecretStr(KEY), "deployment": "a", "gpu_types": (L4,), "image": "x"}, ManualClock()
    )
    assert opened.name == "runpod"
    assert "runpod" in registry.installed()


@pytest.mark.parametrize(("options", "said"), [({"bogus": 1}, "bogus"), ({}, "api_key")])
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidSettings, match=said):
        registry.find("runpod")(options, ManualClock())


def test_an_unknown_provider_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(InvalidSettings, match=r"there is no provider 'rumpod'; installed are: .*runpod"):
        registry.find("rumpod")


def created(options: Any, **environment: str) -> dict[str, Any]:
    """The body that is sent for a pod."""
    sent: list[dict[str, Any]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        sent.append(json.loads(request.content))
        return httpx.Response(201, json={"id": "p", "name": sent[0]["name"], "status": "PROVISIONING"})

    provider = RunpodProvider(options, ManualClock(), transport=httpx.MockTransport(answer))
    provider.spawn(a_request(NAMING.name("w1"), **environment))
    return sent[0]


def never(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"{request.method} {request.url} was sent")
