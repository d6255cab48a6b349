"""Check the links of the built site: ``python docs/_site/check_site.py [FOLDER]``, by default ``build/site``.

Zensical's strict build checks pages and anchors that Markdown links to, but neither images and files nor whether the
navigation leads to every page.
"""

import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SITE = Path(__file__).resolve().parents[2] / "build" / "site"


class Page(HTMLParser):
    """Reads the anchors of a page, its links, and the files that it loads."""

    def __init__(self, html: str) -> None:
        """Read a page."""
        super().__init__()
        self.anchors = {""}
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.navigation: set[str] = set()
        self._depth = 0
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Read an element."""
        values = dict(attrs)
        self._depth += tag == "nav"
        self.anchors.update(value for name in ("id", "name") if (value := values.get(name)))
        href, src = values.get("href"), values.get("src")
        if tag == "a" and href is not None:
            self.links.add(href)
            if self._depth:
                self.navigation.add(href)
        elif tag == "link" and href is not None and values.get("rel") != "canonical":
            self.loaded.add(href)
        if src is not None:
            self.loaded.add(src)

    def handle_endtag(self, tag: str) -> None:
        """Leave an element."""
        self._depth -= tag == "nav"


def problems(site: Path) -> Iterator[str]:
    """Yield a message for each link that leads nowhere, file from the network, and page outside the navigation."""
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}
    if site / "index.html" not in pages:
        yield f"{site}: there is no index.html; build the site first"
        return
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in sorted(page.links | page.loaded):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                if link in page.loaded and parts.scheme != "data":
                    yield f"{name}: {link} is loaded from the network"
                continue
            base = site if parts.path.startswith("/") else path.parent
            target = (base / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            if not target.is_file():
                yield f"{name}: {link} does not exist"
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                yield f"{name}: {link} has no such anchor"
    home = site / "index.html"
    listed = {(site / urlsplit(link).path).resolve() for link in pages[home].navigation}
    for path in pages:
        if path not in listed and path.name not in {"404.html", "index.html"}:
            yield f"{path.relative_to(site)}: the navigation in mkdocs.yml does not contain this page"


if __name__ == "__main__":
    if messages := list(problems(Path(sys.argv[1] if len(sys.argv) > 1 else SITE).resolve())):
        sys.exit("\n".join(messages))
