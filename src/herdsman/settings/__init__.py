"""The only reader of the environment, `.env` and `herdsman.toml`."""

from herdsman.settings.load import load_settings
from herdsman.settings.model import Origin, Settings
from herdsman.settings.relation import Relation
from herdsman.settings.relations import RELATIONS, advice
from herdsman.settings.rows import Row, rows

__all__ = ["RELATIONS", "Origin", "Relation", "Row", "Settings", "advice", "load_settings", "rows"]
