"""What is different in a plain document from an older one: small where little has changed, and without a loss.

A difference is one of `[]` (nothing), `["new", value]`, `["cells", {place: difference}]` for lists of one length and
dicts with the same keys, and `["rows", [row, ...]]` for lists of rows, in which a row is `place` of an equal one,
`[place, difference]` from one with the same name, or `{"row": row}`.
"""

from typing import Any, TypeGuard

Difference = list[Any]
SAME: Difference = []


def difference(old: Any, new: Any) -> Difference:
    """`applied(old, difference(old, new))` is `new`. Places of dicts are their keys."""
    if type(old) is not type(new):
        return ["new", new]
    if _is_dict(new):
        return _cells({key: (old[key], new[key]) for key in new}) if list(old) == list(new) else ["new", new]
    if not _is_list(new):
        return SAME if old == new else ["new", new]
    if _rows(old) and _rows(new):
        return _by_name(old, new)
    if len(old) != len(new):
        return ["new", new]
    return _cells({str(at): (old[at], new[at]) for at in range(len(new))})


def applied(old: Any, change: Difference) -> Any:
    if not change:
        return old
    kind, told = change
    if kind == "new":
        return told
    if kind == "rows":
        return [_row(old, each) for each in told]
    if _is_dict(old):
        return {key: applied(cell, told.get(key, SAME)) for key, cell in old.items()}
    return [applied(cell, told.get(str(at), SAME)) for at, cell in enumerate(old)]


def _cells(pairs: dict[str, tuple[Any, Any]]) -> Difference:
    found = {place: change for place, (old, new) in pairs.items() if (change := difference(old, new))}
    return ["cells", found] if found else SAME


def _rows(value: Any) -> TypeGuard[list[list[Any]]]:
    """Each begins with its name."""
    return _is_list(value) and all(_is_list(each) and each and isinstance(each[0], str) for each in value)


def _by_name(old: list[list[Any]], new: list[list[Any]]) -> Difference:
    """They may come, go and change places."""
    places = {row[0]: at for at, row in enumerate(old)}
    told = [_against(old, places.get(row[0]), row) for row in new]
    return SAME if told == list(range(len(old))) else ["rows", told]


def _against(old: list[list[Any]], place: int | None, row: list[Any]) -> Any:
    if place is None:
        return {"row": row}
    change = difference(old[place], row)
    return [place, change] if change else place


def _row(old: list[Any], told: Any) -> Any:
    if _is_dict(told):
        return told["row"]
    place, change = told if _is_list(told) else (told, SAME)
    return applied(old[place], change)


def _is_list(value: Any) -> TypeGuard[list[Any]]:
    return isinstance(value, list)


def _is_dict(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
