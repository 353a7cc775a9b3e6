"""A program for the Python that has mini-swe-agent: opens trajectories in its inspector, which runs headless.

It writes a JSON object for each page that the inspector shows: its title, and the lines under each heading.
"""

import asyncio
import json
import sys
from pathlib import Path

from minisweagent.run.utilities.inspector import TrajectoryInspector
from textual.widgets import Static


def page(inspector):
    shown = [str(widget.render()) for widget in inspector.query("#content Static").results(Static)]
    return {
        "title": inspector.title,
        "shown": shown,
        "notices": [notice.message for notice in inspector._notifications],
    }


async def main():
    inspector = TrajectoryInspector([Path(name) for name in sys.argv[1:]])
    pages = []
    async with inspector.run_test(size=(120, 60)) as pilot:
        for number in range(len(sys.argv) - 1):
            await pilot.press(*["L"] * bool(number), "0")
            for step in range(inspector.n_steps):
                await pilot.press(*["l"] * bool(step))
                await pilot.pause()
                pages.append(page(inspector))
    print(json.dumps(pages))


asyncio.run(main())
