"""Short formats of numbers and durations."""

import math


def short(value: float) -> str:
    """Format a number: 1234567 -> 1.2M, 213.42 -> 213.4, 0.01234 -> 0.01234."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.1f}{unit}"
    return f"{value:.4g}"


def duration(seconds: float) -> str:
    """Format a duration: 7384 -> 2h03m, 250 -> 4m10s, 12 -> 12s, unknown -> -."""
    if not math.isfinite(seconds):
        return "-"
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
