"""A straight line through the last points of a series, from sums that are kept up to date."""

from __future__ import annotations

import math
from collections import deque


class RunningLine:
    """Least squares over the last `size` points; adding one costs the same however many there are.

    The sums are about a point of the series and are made anew after every `size` points, so that they do
    not cancel when the points move away from it.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self.clear()

    def __len__(self) -> int:
        return len(self._points)

    def clear(self) -> None:
        """Forget all points."""
        self._points: deque[tuple[float, float]] = deque()
        self._origin = (0.0, 0.0)
        self._sums = (0.0, 0.0, 0.0, 0.0, 0.0)
        self._added = 0

    def add(self, x: float, y: float) -> None:
        """Append a point, and drop the oldest if there are too many."""
        self._points.append((x, y))
        self._added += 1
        if self._added >= self._size or len(self._points) == 1:
            while len(self._points) > self._size:
                self._points.popleft()
            self._origin, self._sums, self._added = self._points[0], (0.0,) * 5, 0
            for point in self._points:
                self._count(*point, 1.0)
            return
        self._count(x, y, 1.0)
        if len(self._points) > self._size:
            self._count(*self._points.popleft(), -1.0)

    def _count(self, x: float, y: float, sign: float) -> None:
        x, y = x - self._origin[0], y - self._origin[1]
        sx, sy, sxx, sxy, syy = self._sums
        self._sums = (
            sx + sign * x,
            sy + sign * y,
            sxx + sign * x * x,
            sxy + sign * x * y,
            syy + sign * y * y,
        )

    def predict(self, x: float) -> tuple[float, float]:
        """The value at x, and the standard error of a new point there."""
        n = len(self._points)
        sx, sy, sxx, sxy, syy = self._sums
        xx, xy, yy = sxx - sx * sx / n, sxy - sx * sy / n, syy - sy * sy / n
        if n < 3 or xx <= 0:
            return math.nan, math.inf
        slope, away = xy / xx, x - self._origin[0] - sx / n
        residual = max(0.0, yy - slope * xy)
        error = math.sqrt(residual / (n - 2) * (1 + 1 / n + away * away / xx))
        return self._origin[1] + sy / n + slope * away, error
