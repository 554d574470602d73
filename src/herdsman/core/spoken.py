"""Spans of time as a person says them."""


def spoken(seconds: float) -> str:
    """`0.4 s`, `42 s`, `7 min 5 s`, `3 h 10 min`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
