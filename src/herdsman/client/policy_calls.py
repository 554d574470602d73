"""The policy over HTTP, one function for each thing that can be asked."""

from herdsman.client.answers import body_of
from herdsman.client.call import Call, encoded, get
from herdsman.wire.policy import EditionOut, HistoryOut, PolicyIn, PolicyOut

PLACE = "/control/policy"


def find(version: int | None = None) -> Call[PolicyOut]:
    return get(PLACE if version is None else f"{PLACE}/{version}", body_of(PolicyOut))


def change(wanted: PolicyIn) -> Call[EditionOut]:
    return Call(method="PUT", path=PLACE, read=body_of(EditionOut), body=encoded(wanted))


def history(after: int | None, limit: int) -> Call[HistoryOut]:
    return get(f"{PLACE}/history", body_of(HistoryOut), {"after": after, "limit": limit})
