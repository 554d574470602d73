"""The only reader of the environment, `.env` and `herdsman.toml`."""

from herdsman.settings.load import load_settings
from herdsman.settings.model import Origin, Row, Settings, rows
from herdsman.settings.relations import RELATIONS, Relation, advice

__all__ = ["RELATIONS", "Origin", "Relation", "Row", "Settings", "advice", "load_settings", "rows"]
