"""Small charts: what each shows, and its drawing as SVG, in the colours of a page or as a file."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rrg_rewards.utilities.markup import Markup, element

_WIDTH, _LEFT, _RIGHT, _ROW = 480.0, 150.0, 20.0, 24.0
_LETTERS = 21
_BINS = 24
# Of a file; the colours of a page are in its style sheet.
_COLORS = ("#0b57a4", "#b4450a", "#1d7a3a", "#7a3cbd", "#a1154b", "#58616b")
_STYLE = (
    "svg{background:#fff} text{font:12px sans-serif} line{stroke:#0b57a4;stroke-width:2} "
    ".grid{stroke:#ddd;stroke-width:1} .zero{stroke:#000;stroke-width:1} "
    ".reference{stroke:#58616b;stroke-dasharray:1 4} circle{fill:#0b57a4} circle.unclear{fill:#b4450a} "
    ".point{fill-opacity:.55} .curve{fill:none;stroke-width:2} "
    + " ".join(f".line{k}{{stroke:{color}}} circle.series{k}{{fill:{color}}}" for k, color in enumerate(_COLORS))
)


class Interval(NamedTuple):
    """A value with the ends of its interval, which may be missing, and the class of its mark."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    kind: str = "value"


class _Scale(NamedTuple):
    """A linear scale from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Return round numbers in the range."""
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / most))
        step = next(step * factor for factor in (1, 2, 5, 10, 20) if (self.high - self.low) / (step * factor) <= most)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [round(place * step, 12) for place in range(first, last + 1)]


def _scale(values: Sequence[float], start: float, end: float) -> _Scale:
    low, high = min(values, default=0.0), max(values, default=1.0)
    margin = (high - low) * 0.03 or max(abs(high), 1.0) * 0.05
    return _Scale(low - margin, high + margin, start, end)


def _text(text: str, x: float, y: float, anchor: str = "start") -> Markup:
    return element("text", text, x=x, y=y, text_anchor=anchor)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return element("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def _svg(title: str, height: float, parts: Sequence[str], width: float = _WIDTH) -> Markup:
    """Return a figure with a caption; a screen reader reads the caption, and the numbers in the table beside it."""
    box = f"0 0 {width:g} {height:g}"
    drawing = element("svg", *parts, viewBox=box, width=width, height=height, role="img", aria_label=title)
    return element("figure", drawing, element("figcaption", title))


def _x_axis(scale: _Scale, top: float, bottom: float) -> list[Markup]:
    parts = []
    for tick in scale.ticks():
        parts += [
            _line(scale(tick), top, scale(tick), bottom, "grid"),
            _text(f"{tick:g}", scale(tick), bottom + 16, "middle"),
        ]
    return parts


def _y_axis(scale: _Scale, left: float, right: float) -> list[Markup]:
    parts = []
    for tick in scale.ticks(5):
        parts += [
            _line(left, scale(tick), right, scale(tick), "grid"),
            _text(f"{tick:g}", left - 6, scale(tick) + 4, "end"),
        ]
    return parts


def _shortened(name: str) -> str:
    return name if len(name) <= _LETTERS else f"{name[: _LETTERS - 1]}…"


@dataclass(frozen=True)
class Intervals:
    """Values with their intervals, one below the other.

    Args:
        title: Caption.
        rows: Values.
        marks: Vertical lines by class: ``zero``, ``threshold`` or ``reference``.
        within: Further values that the axis contains, for charts that share one.

    Example:
        >>> "<svg" in Intervals("CRG", [Interval("crg", 0.5, 0.4, 0.6)]).svg()
        True
    """

    title: str
    rows: Sequence[Interval]
    marks: Mapping[str, float] = field(default_factory=dict)
    within: Sequence[float] = ()

    def svg(self) -> Markup:
        """Return the chart as a figure."""
        ends = [end for row in self.rows for end in (row.value, row.low, row.high) if end is not None]
        scale = _scale([*ends, *self.marks.values(), *self.within], _LEFT, _WIDTH - _RIGHT)
        bottom = _ROW * len(self.rows) + 8
        parts: list[str] = [*_x_axis(scale, 4, bottom)]
        parts += [_line(scale(value), 4, scale(value), bottom, kind) for kind, value in self.marks.items()]
        for number, row in enumerate(self.rows):
            y = _ROW * (number + 0.5) + 4
            parts.append(_text(_shortened(row.name), _LEFT - 10, y + 4, "end"))
            if row.low is not None and row.high is not None:
                parts.append(_line(scale(row.low), y, scale(row.high), y, f"interval {row.kind}"))
            parts.append(element("circle", cx=scale(row.value), cy=y, r=4.5, class_=row.kind))
        return _svg(self.title, bottom + 24, parts)


@dataclass(frozen=True)
class Histogram:
    """The distribution of values; at least one. A line marks ``mark``, such as the mean."""

    title: str
    values: Sequence[float]
    mark: float | None = None

    def svg(self) -> Markup:
        """Return the chart as a figure."""
        width, height = 320.0, 150.0
        scale = _scale(self.values if self.mark is None else [*self.values, self.mark], 36, width - 10)
        counts = [0] * _BINS
        low, high = min(self.values), max(self.values)
        for value in self.values:
            counts[min(int((value - low) / ((high - low) or 1) * _BINS), _BINS - 1)] += 1
        tall = _Scale(0, max(counts), height - 24, 8)
        parts: list[str] = [*_x_axis(scale, 8, height - 24), *_y_axis(tall, 36, width - 10)]
        step = (scale(high) - scale(low)) / _BINS or 8.0
        for number, count in enumerate(counts):
            if count:
                box = {"x": scale(low) + number * step, "width": max(step - 1, 1)}
                parts.append(element("rect", **box, y=tall(count), height=tall(0) - tall(count), class_="bar"))
        if self.mark is not None:
            parts.append(_line(scale(self.mark), 8, scale(self.mark), height - 24, "mean"))
        return _svg(self.title, height, parts, width)


@dataclass(frozen=True)
class Scatter:
    """Points (across, up) by the name of their series, with the names above if there are several.

    Args:
        title: Caption.
        across: Name of the horizontal axis.
        up: Name of the vertical axis.
        points: Points of each series.
        diagonal: Whether there is a line of equal values.
    """

    title: str
    across: str
    up: str
    points: Mapping[str, Sequence[tuple[float, float]]]
    diagonal: bool = False

    def svg(self) -> Markup:
        """Return the chart as a figure."""
        size = 320.0
        points = [point for series in self.points.values() for point in series]
        x_scale = _scale([x for x, _ in points], 46, size - 10)
        y_scale = _scale([y for _, y in points], size - 44, 10)
        parts: list[str] = [*_x_axis(x_scale, 10, size - 44), *_y_axis(y_scale, 46, size - 10)]
        if self.diagonal:
            low, high = max(x_scale.low, y_scale.low), min(x_scale.high, y_scale.high)
            parts.append(_line(x_scale(low), y_scale(low), x_scale(high), y_scale(high), "zero"))
        for number, (name, series) in enumerate(self.points.items()):
            kind = "point" if len(self.points) == 1 else f"point series{number % len(_COLORS)}"
            parts += [element("circle", cx=x_scale(x), cy=y_scale(y), r=2.5, class_=kind) for x, y in series]
            if len(self.points) > 1:
                y = 20.0 + 14 * number
                parts += [element("circle", cx=56, cy=y, r=4, class_=kind), _text(name, 64, y + 4)]
        parts += [_text(self.across, (46 + size) / 2, size - 8, "middle"), _text(self.up, 4, 10)]
        return _svg(self.title, size, parts, size)


@dataclass(frozen=True)
class Curves:
    """Lines through points (step, value), with their names below if there are several.

    Args:
        title: Caption.
        lines: Points of each line.
        marks: Steps with a vertical line.
        dashed: Names of the dashed lines.
    """

    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]
    marks: Sequence[float] = ()
    dashed: Collection[str] = ()

    def svg(self) -> Markup:
        """Return the chart as a figure."""
        height = 220.0
        points = [point for line in self.lines.values() for point in line]
        x_scale = _scale([x for x, _ in points], 52, _WIDTH - _RIGHT)
        y_scale = _scale([y for _, y in points], height - 46, 10)
        parts: list[str] = [*_x_axis(x_scale, 10, height - 46), *_y_axis(y_scale, 52, _WIDTH - _RIGHT)]
        parts += [_line(x_scale(step), 10, x_scale(step), height - 46, "mark") for step in self.marks]
        for number, (name, line) in enumerate(self.lines.items()):
            color = f"line{number % 6}"
            kind = f"curve {color} dashed" if name in self.dashed else f"curve {color}"
            path = " ".join(f"{x_scale(x):.1f},{y_scale(y):.1f}" for x, y in line)
            parts.append(element("polyline", points=path, class_=kind))
            if len(line) == 1:
                parts.append(element("circle", cx=x_scale(line[0][0]), cy=y_scale(line[0][1]), r=3.5, class_=color))
            x = 52 + number * (_WIDTH - 52) / len(self.lines)
            if len(self.lines) > 1:
                parts += [_line(x, height - 10, x + 18, height - 10, kind), _text(name, x + 24, height - 6)]
        return _svg(self.title, height, parts)


Chart = Curves | Histogram | Intervals | Scatter


def cards(charts: Iterable[Chart], wide: bool = False) -> list[Markup]:
    """Return charts side by side as one element, or nothing if there are none.

    Example:
        >>> len(cards([Histogram("crg", [0.5]), Histogram("rouge", [0.25])])), cards([])
        (1, [])
    """
    drawings = [chart.svg() for chart in charts]
    return [element("div", *drawings, class_="cards wide" if wide else "cards")] if drawings else []


def svg_file(chart: Chart) -> bytes:
    """Return a chart as a file: SVG with its own colours, on white. The title is its label."""
    figure = chart.svg()
    drawing = figure[figure.index("<svg") : figure.index("</svg>")]
    tag, rest = drawing.split(">", 1)
    return f'{tag} xmlns="http://www.w3.org/2000/svg"><style>{_STYLE}</style>{rest}</svg>\n'.encode()
