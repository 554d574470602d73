"""The settings as options of the result store."""

from pathlib import Path

from herdsman.core.errors import InvalidSettings
from herdsman.core.result_options import ResultOptions
from herdsman.settings.model import Settings

_DIRECTORY = "results"


def result_options(settings: Settings) -> ResultOptions:
    """The same for every program of one machine, as long as they have the same settings."""
    chosen = settings.results
    if (chosen.result_s3_key_id is None) != (chosen.result_s3_secret is None):
        raise InvalidSettings(
            "RESULT_S3_KEY_ID and RESULT_S3_SECRET belong together: set both, or none to use the machine's own role"
        )
    return ResultOptions(
        place=_place(settings),
        max_file_mb=chosen.result_max_file_mb,
        max_job_mb=chosen.result_max_job_mb,
        allow_hosts=chosen.result_allow_hosts,
        s3_endpoint=chosen.result_s3_endpoint,
        s3_region=chosen.result_s3_region,
        s3_key_id=chosen.result_s3_key_id,
        s3_secret=None if chosen.result_s3_secret is None else chosen.result_s3_secret.get_secret_value(),
    )


def _place(settings: Settings) -> str:
    chosen = settings.results.result_store
    if chosen is not None and "://" in chosen:
        return chosen
    path = Path(chosen) if chosen is not None else Path(settings.local.local_state_dir) / _DIRECTORY
    return str(path.expanduser().absolute())
