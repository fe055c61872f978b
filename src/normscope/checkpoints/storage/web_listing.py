"""Folders on web servers that list them: index pages of nginx, Apache and Python; XML of buckets.

A page is not trusted: only links to direct children of its own address count, and only so many bytes of it.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from html.parser import HTMLParser
from urllib.parse import quote, unquote, urlencode, urljoin, urlsplit, urlunsplit

from normscope.checkpoints.base import File, Folder
from normscope.checkpoints.ranges.web_connections import origin
from normscope.checkpoints.storage.file_tree import FileTree
from normscope.checkpoints.storage.web import WebFolder, WebPage, read_page
from normscope.errors import CheckpointError

LARGEST_PAGE = 16_000_000
MOST_FILES = 300_000
MOST_PAGES = 3000
MOST_EMPTY = 10
"""Pages in a row that list nothing, and say that there are more."""
_KEY = re.compile(r"<Contents>.*?<Key>([^<]*)</Key>.*?</Contents>", re.DOTALL)
_TOKEN = re.compile(r"<NextContinuationToken>([^<]*)</NextContinuationToken>")


class IndexFolder(Folder):
    """A folder with an index page; each folder below it has a page of its own."""

    def __init__(self, url: str, page: WebPage | None = None) -> None:
        self.name = url.rstrip("/")
        self._url, self._page = url, page
        self._names: list[str] | None = None

    def names(self) -> Sequence[str]:
        """Names of the children; folders end with a slash."""
        if self._names is None:
            page = self._page or read_page(self._url, LARGEST_PAGE)
            if not page.is_html:
                raise cannot_list(self._url, f"it answered {page.status}")
            self._names = linked_names(page.text, self._url)
        return self._names

    def file(self, name: str) -> File:
        """The file under its link."""
        return _open_file(self._url, name)

    def folder(self, name: str) -> IndexFolder:
        """The folder under its link."""
        return IndexFolder(urljoin(self._url, quote(name.rstrip("/")) + "/"))


class BucketFolder(Folder):
    """A folder of a bucket, all of whose keys were listed as XML; `base` is the address of the bucket."""

    def __init__(self, base: str, tree: FileTree[None], prefix: str) -> None:
        self.name = f"{base}{prefix}".rstrip("/")
        self._base, self._tree, self._prefix = base, tree, prefix

    def names(self) -> Sequence[str]:
        """Names of the children; folders end with a slash."""
        return self._tree.names(self._prefix)

    def file(self, name: str) -> File:
        """The object under its key."""
        return _open_file(self._base, self._prefix + name)

    def folder(self, name: str) -> BucketFolder:
        """The keys that begin with its name."""
        return BucketFolder(self._base, self._tree, f"{self._prefix}{name.rstrip('/')}/")


def open_listing(url: str) -> Folder:
    """The folder at an address that ends with a slash; CheckpointError if the server does not list it."""
    page = read_page(url, LARGEST_PAGE)
    if page.is_html:
        return IndexFolder(url, page)
    parts = urlsplit(url)
    path = unquote(parts.path.lstrip("/"))
    bucket, _, rest = path.partition("/")
    root = urlunsplit((parts.scheme, parts.netloc, "/", "", ""))
    for base, prefix in ((root, path), (f"{root}{quote(bucket)}/", rest)):
        if (page.is_s3 or not path) and (keys := _list_bucket(base, prefix)) is not None:
            return BucketFolder(base, FileTree(dict.fromkeys(keys)), prefix)
    raise cannot_list(url, f"it answered {page.status}")


def linked_names(text: str, url: str) -> list[str]:
    """The names of direct children that a page links to; sorting links, parents and other sites do not count.

    >>> linked_names('<a href="?C=N">x</a><a href="../">..</a><a href="step_1/">1</a><a href="/b/c">c</a>', "http://h/b/")
    ['c', 'step_1/']
    """
    found = _Links()
    found.feed(text)
    path = urlsplit(url).path
    names = set()
    for link in found.links:
        try:
            target = urljoin(url, link)
            elsewhere = origin(target) != origin(url)
        except ValueError:  # "http://["
            continue
        inside = urlsplit(target).path.removeprefix(path)
        is_child = urlsplit(target).path.startswith(path) and "/" not in inside[:-1] and inside != "/"
        if is_child and not elsewhere and not urlsplit(target).query:
            names.add(unquote(inside))
    return sorted(name for name in names if name.strip("/.") and "/" not in name[:-1])


def cannot_list(url: str, why: str) -> CheckpointError:
    """The error for a folder that a server does not list, with what can be typed instead."""
    return CheckpointError(
        f"{url} cannot be listed: {why}, with no index page (nginx, Apache, Python) and no keys of a bucket. "
        "Give the addresses of the files, or that of the bucket as s3://BUCKET/FOLDER."
    )


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]


def _list_bucket(base: str, prefix: str) -> list[str] | None:
    """The keys of a bucket under a prefix, page by page; None if there is no such bucket."""
    keys: list[str] = []
    token = ""
    tokens, empty = {token}, 0
    while True:
        asked = {"list-type": "2", "prefix": prefix} | ({"continuation-token": token} if token else {})
        page = read_page(f"{base}?{urlencode(asked)}", LARGEST_PAGE)
        if page.status != 200 or "<ListBucketResult" not in page.text[:500]:
            return None
        listed = _KEY.findall(page.text)
        keys += map(html.unescape, listed)
        empty = 0 if listed else empty + 1
        more = _TOKEN.search(page.text)
        if len(keys) > MOST_FILES or (more is None and "<IsTruncated>true" in page.text):
            raise CheckpointError(
                f"{base} does not list all its keys under {prefix!r}: give a smaller folder."
            )
        if more is None:
            return [key for key in keys if not key.endswith("/")]
        token = html.unescape(more[1])
        if token in tokens or len(tokens) >= MOST_PAGES or empty > MOST_EMPTY:
            page_number = f"page {len(tokens):,}"
            raise CheckpointError(
                f"{base} cannot be listed: its keys under {prefix!r} go on without end ({page_number})."
            )
        tokens.add(token)


def _open_file(base: str, path: str) -> File:
    url = urljoin(base, quote(path))
    folder = WebFolder(url)
    return folder.file(folder.names()[0])
