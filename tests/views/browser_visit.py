"""A page opened from disk in a real Chromium."""

from __future__ import annotations

FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


class Visit:
    """A page opened from disk, with what it asked for and what it complained about."""

    def __init__(self, browser, path, **options):
        self.requests, self.complaints = [], []
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.route("**/*", self._route)
        self.page.on(
            "console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None
        )
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.address = path.as_uri()
        self.load()

    def load(self):
        """Open the page, anew if it is open: nothing that was done to it stays, the process does."""
        self.requests.clear()
        self.complaints.clear()
        self.page.mouse.move(0, 0)
        self.page.goto(self.address)
        self.page.wait_for_selector("body[data-drawn=yes]", timeout=60_000)

    def _route(self, route):
        url = route.request.url
        if url.startswith(("file:", "data:", "blob:")):
            route.continue_()
        else:
            self.requests.append(url)
            route.abort()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.context.close()

    def settled(self):
        self.page.wait_for_timeout(150)

    def background(self):
        return self.page.evaluate("getComputedStyle(document.body).backgroundColor")

    def ink(self):
        return self.page.evaluate("document.querySelector('.plot').layout.font.color")

    def overflow(self):
        return self.page.evaluate(
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )
