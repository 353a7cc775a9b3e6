"""A line chart as SVG, without a plotting library and with reproducible output."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 250, 40, 50
FONT = 'font-family="sans-serif"'
COLOURS = ("#d1495b", "#b07d12", "#00798c")

Line = Sequence[tuple[float, float]]


def chart(title: str, across: str, up: str, lines: Mapping[str, Line]) -> str:
    """Return a chart of lines, each labelled at its right end; both axes begin at 0."""
    most_x = max(x for line in lines.values() for x, _ in line)
    most_y = _round_up(max(y for line in lines.values() for _, y in line))
    middle = (TOP + HEIGHT - BOTTOM) / 2

    def position(x: float, y: float) -> str:
        left = LEFT + x / most_x * (WIDTH - LEFT - RIGHT)
        return f"{left:.1f},{HEIGHT - BOTTOM - y / most_y * (HEIGHT - TOP - BOTTOM):.1f}"

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" {FONT} font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(LEFT, 22, title, 'font-size="14" font-weight="bold"'),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, across, 'text-anchor="middle"'),
        _text(16, middle, up, f'text-anchor="middle" transform="rotate(-90 16 {middle})"'),
    ]
    for step in range(6):
        x, y = most_x * step / 5, most_y * step / 5
        left, down = position(0, y).split(",")
        parts += [
            f'<path d="M{position(0, y)} L{position(most_x, y)}" stroke="#dddddd"/>',
            _text(float(left) - 6, float(down) + 4, f"{y:,.0f}", 'text-anchor="end"'),
            _text(float(position(x, 0).split(",")[0]), HEIGHT - BOTTOM + 18, f"{x:,.0f}", 'text-anchor="middle"'),
        ]
    for colour, (name, line) in zip(COLOURS, lines.items(), strict=False):
        points = " ".join(position(x, y) for x, y in line)
        right, down = position(*line[-1]).split(",")
        parts += [
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>',
            _text(float(right) + 6, float(down) + 4, f"{name}: {line[-1][1]:,.0f}", f'fill="{colour}"'),
        ]
    return "\n".join([*parts, "</svg>", ""])


def _text(x: float, y: float, text: str, more: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(text)}</text>'


def _round_up(value: float) -> float:
    """Round up to 1, 2, 2.5, 5 or 10 times a power of ten."""
    size = 10.0 ** (len(str(int(value))) - 1)
    return next(step * size for step in (1, 2, 2.5, 5, 10) if step * size >= value)
