"""A headless Chromium before an inspector, with all that it asked for, printed or failed at."""

from contextlib import contextmanager

import environments
import pytest

ARGUMENTS = ("--no-sandbox", "--no-zygote", "--disable-gpu")
"""The sandbox needs more rights than a container gives; there is no graphics card."""


def program():
    """Return the path of Chromium; skip the test if it is not there."""
    if not environments.is_made("chromium"):
        pytest.skip("Chromium is not installed: make e2e-chromium")
    return environments.path_of("chromium")


@contextmanager
def chromium():
    """Start a browser."""
    path = program()
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(path), args=[*ARGUMENTS])
        try:
            yield browser
        finally:
            browser.close()


class Tab:
    """One tab, in a context of its own."""

    def __init__(self, browser, url, **context):
        self.context = browser.new_context(**{"viewport": {"width": 1280, "height": 860}, **context})
        self.page = self.context.new_page()
        self.page.set_default_timeout(5000)
        self.url = url
        self.asked, self.errors = [], []
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._printed)
        self.page.goto(f"{url}/inspect")

    def _printed(self, message):
        # a status of an error, and a proxy that is stopped, are what some tests are about
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            self.errors.append(message.text)

    def log_in(self, key):
        self.page.fill("#key", key)
        self.page.keyboard.press("Enter")
        self.page.wait_for_selector("#login", state="hidden")
        return self

    def select(self, place=0):
        """Select an exchange of the list, and wait until it is shown."""
        row = self.page.locator("#list li").nth(place)
        row.click()
        self.page.wait_for_selector("#detail h2")
        return self

    def text(self, selector):
        return self.page.inner_text(selector)

    def faults(self, rules=("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice")):
        """Return what axe-core finds in the page."""
        self.page.evaluate((environments.folder_of("chromium") / "node_modules/axe-core/axe.min.js").read_text("utf-8"))
        result = self.page.evaluate("(tags) => axe.run(document, {runOnly: tags})", list(rules))
        return [(found["id"], [node["html"][:200] for node in found["nodes"]]) for found in result["violations"]]

    def close(self):
        self.context.close()
