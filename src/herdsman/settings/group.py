"""What every group of settings has in common."""

from pydantic import BaseModel, ConfigDict


class Group(BaseModel):
    """Settings on one subject. A field's name in capitals is the variable that a person types.

    A plain model rather than a `BaseSettings`, so that building one never looks at the environment:
    `load_settings` alone does.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)
