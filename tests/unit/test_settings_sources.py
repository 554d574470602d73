"""Where a value comes from, who has the first say, and what happens to a name nobody knows."""

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from herdsman.errors import InvalidSettings
from herdsman.settings import Origin, load_settings
from herdsman.settings.model import ACCEPTED, CATALOGUE

NOWHERE = Path("/nonexistent")


def refusal(env: dict[str, str], cwd: Path = NOWHERE) -> str:
    with pytest.raises(InvalidSettings) as refused:
        load_settings(env, cwd)
    return str(refused.value)


def test_the_environment_goes_before_dotenv_before_the_file_before_the_default(tmp_path: Path) -> None:
    def minimum(env: dict[str, str]) -> tuple[int, Origin]:
        settings = load_settings(env, tmp_path)
        return settings.scaling.min_active_gpus, settings.origin("MIN_ACTIVE_GPUS")

    assert minimum({}) == (2, Origin.DEFAULT)
    (tmp_path / "herdsman.toml").write_text("min_active_gpus = 5")
    assert minimum({}) == (5, Origin.FILE)
    (tmp_path / ".env").write_text("MIN_ACTIVE_GPUS=6\n")
    assert minimum({}) == (6, Origin.DOTENV)
    assert minimum({"MIN_ACTIVE_GPUS": "7"}) == (7, Origin.ENVIRONMENT)


@pytest.mark.parametrize("first_say", ["environment", ".env"])
def test_the_prefixed_spelling_wins(first_say: str, tmp_path: Path) -> None:
    both = {"HERDSMAN_MAX_ACTIVE_GPUS": "20", "MAX_ACTIVE_GPUS": "30"}
    if first_say == ".env":
        (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in both.items()))
    settings = load_settings(both if first_say == "environment" else {}, tmp_path)
    assert settings.scaling.max_active_gpus == 20


@pytest.mark.parametrize("name", CATALOGUE)
def test_every_name_is_accepted_with_the_prefix(name: str) -> None:
    problem = f"HERDSMAN_{name}X in the environment is not a setting; did you mean HERDSMAN_{name}?"
    assert refusal({f"HERDSMAN_{name}X": "1"}) == problem


def test_a_variable_set_to_nothing_counts_as_not_set() -> None:
    settings = load_settings({"HERDSMAN_MIN_ACTIVE_GPUS": "", "MIN_ACTIVE_GPUS": "4", "RUNPOD_API_KEY": ""}, NOWHERE)
    assert settings.scaling.min_active_gpus == 4
    assert settings.runpod.runpod_api_key is None


def test_variables_of_other_programs_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("NPM_TOKEN=x\nMIN_ACTIVE_GPU=9\n")
    assert load_settings({"PATH": "/bin", "MIN_ACTIVE_GPU": "9"}, tmp_path).scaling.min_active_gpus == 2


@pytest.mark.parametrize(
    "name",
    [
        "HERDSMAN_SERVICE_HOST",
        "HERDSMAN_SERVICE_PORT_HTTP",
        "HERDSMAN_PORT",
        "HERDSMAN_PORT_8080_TCP_ADDR",
        "HERDSMAN_API_PORT_8080_TCP",
    ],
)
def test_variables_that_kubernetes_adds_for_a_service_of_our_name_are_left_alone(name: str) -> None:
    load_settings({name: "tcp://10.0.0.1:8080"}, NOWHERE)


def test_a_prefixed_typo_in_dotenv_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HERDSMAN_CLAIM_TTL=5\n")
    problem = f"HERDSMAN_CLAIM_TTL in {tmp_path / '.env'} is not a setting; did you mean HERDSMAN_CLAIM_TTL_SEC?"
    assert refusal({}, tmp_path) == problem


@given(st.text(st.sampled_from("ABCDEFGHIJKLMNOPQRSTUVWXYZ_"), max_size=40))
def test_no_unknown_prefixed_name_gets_through(name: str) -> None:
    assume(name not in ACCEPTED and name != "CONFIG" and "PORT" not in name and "SERVICE" not in name)
    assert f"HERDSMAN_{name} in the environment is not a setting" in refusal({f"HERDSMAN_{name}": "1"})


class TestConfigFile:
    @pytest.fixture
    def file(self, tmp_path: Path) -> Path:
        return tmp_path / "herdsman.toml"

    def test_keys_stand_at_the_top_or_under_their_group(self, file: Path) -> None:
        file.write_text("max_attempts = 5\n[scaling]\nmin_active_gpus = 3\n[runpod]\nrunpod_ram_tiers = [64, 32]\n")
        settings = load_settings({}, file.parent)
        assert settings.jobs.max_attempts == 5
        assert settings.scaling.min_active_gpus == 3
        assert settings.runpod.runpod_ram_tiers == (64, 32)

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("min_active_gpu = 3", "min_active_gpu in {} is not a setting; did you mean min_active_gpus?"),
            ("MIN_ACTIVE_GPUS = 3", "MIN_ACTIVE_GPUS in {} is not a setting; did you mean min_active_gpus?"),
            ("[scalling]\nmin_active_gpus = 3", "scalling in {} is not a setting; did you mean scaling?"),
            ("[jobs]\nmax_atempts = 3", "max_atempts in {} is not a setting; did you mean max_attempts?"),
            ("qqqq = 3", "qqqq in {} is not a setting."),
            (
                "[jobs]\nmin_active_gpus = 3",
                "min_active_gpus in {} stands under [jobs] but belongs under [scaling].",
            ),
            (
                "max_attempts = 3\n[jobs]\nmax_attempts = 4",
                "max_attempts in {} is given twice: at the top and under [jobs].",
            ),
            (
                "min_active_gpus = [1]",
                "min_active_gpus must be a whole number from 0 to 1000000000, but is [1] in {}.",
            ),
        ],
    )
    def test_what_is_wrong_with_it_is_said_in_one_sentence(self, text: str, problem: str, file: Path) -> None:
        file.write_text(text)
        assert refusal({}, file.parent) == problem.format(file)

    def test_it_may_lie_elsewhere(self, tmp_path: Path) -> None:
        (tmp_path / "other.toml").write_text("max_attempts = 8")
        (tmp_path / "herdsman.toml").write_text("nonsense")
        assert load_settings({"HERDSMAN_CONFIG": "other.toml"}, tmp_path).jobs.max_attempts == 8
        (tmp_path / ".env").write_text(f"HERDSMAN_CONFIG={tmp_path / 'other.toml'}\n")
        assert load_settings({}, tmp_path).jobs.max_attempts == 8

    def test_one_that_was_asked_for_must_be_there(self, tmp_path: Path) -> None:
        missing = tmp_path / "missing.toml"
        assert refusal({"HERDSMAN_CONFIG": str(missing)}) == f"{missing} cannot be read: No such file or directory."

    def test_one_that_is_no_toml_is_refused(self, file: Path) -> None:
        file.write_text("min_active_gpus: 3")
        assert refusal({}, file.parent).startswith(f"{file} is not valid TOML: ")


class TestValues:
    def test_lists_are_separated_by_commas(self) -> None:
        env = {"RUNPOD_RAM_TIERS": "64, 32", "RUNPOD_STORAGE_VOLUMES": "fast,slow"}
        settings = load_settings(env, NOWHERE)
        assert settings.runpod.runpod_ram_tiers == (64, 32)
        assert settings.runpod.runpod_storage_volumes == ("fast", "slow")

    @pytest.mark.parametrize("typed", ["false", "0", "no", "off", "False"])
    def test_a_switch_may_be_typed_in_several_ways(self, typed: str) -> None:
        assert load_settings({"AUTO_START_WORKER_PROCESS": typed}, NOWHERE).health.auto_start_worker_process is False

    def test_choices_ignore_case_and_name_what_is_allowed(self) -> None:
        assert load_settings({"LOG_LEVEL": "WARNING"}, NOWHERE).logs.log_level == "warning"
        assert refusal({"LOG_FORMAT": "xml"}) == "LOG_FORMAT must be auto, json or text, but is xml in the environment."

    def test_a_pods_variables_are_a_json_object(self) -> None:
        pod = load_settings({"RUNPOD_ENV_VARS": '{"HF_HOME": "/models"}'}, NOWHERE).runpod.runpod_env_vars
        assert {name: value.get_secret_value() for name, value in pod.items()} == {"HF_HOME": "/models"}

    def test_a_long_or_odd_value_does_not_spoil_the_sentence(self) -> None:
        problem = refusal({"MIN_ACTIVE_GPUS": "9\n" + "x" * 5000})
        assert len(problem) < 250
        assert "\n" not in problem
