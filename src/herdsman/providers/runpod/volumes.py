"""Which network volumes are meant: people name them, Runpod wants their ids."""

from collections.abc import Sequence

from herdsman.core.errors import ProviderRejected
from herdsman.providers.runpod.resources import Volume


def chosen(wanted: Sequence[str], there: Sequence[Volume]) -> tuple[Volume, ...]:
    return tuple(_one(each, there) for each in wanted)


def _one(wanted: str, there: Sequence[Volume]) -> Volume:
    """By id before name, so that nobody can take a volume's place by naming another one like it."""
    by_id = [volume for volume in there if volume.id == wanted]
    found = by_id or [volume for volume in there if volume.name == wanted]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(volume.id for volume in found)
        raise ProviderRejected(f"several network volumes are called {wanted!r}; name one by its id: {ids}")
    known = ", ".join(sorted(volume.name for volume in there)) or "none"
    raise ProviderRejected(f"there is no network volume {wanted!r} in this Runpod account, but: {known}")
