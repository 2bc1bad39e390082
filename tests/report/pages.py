"""Read a page as a reader gets it."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

from lookalike.report import make_report


class Parsed(HTMLParser):
    """Checks that tags are balanced, and collects ids, sources and text."""

    def __init__(self, html):
        super().__init__()
        self.open, self.ids, self.links, self.text = [], [], [], ""
        self.feed(html)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        names = dict(attributes)
        self.ids += [names["id"]] if "id" in names and tag == "section" else []
        self.links += [names[name] for name in ("src", "href", "xlink:href") if name in names]
        if tag not in ("meta", "link", "img", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        pass

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data if not self.open or self.open[-1] != "style" else ""


def report(*paths, out, **options):
    """Make a report; return it with its page, as HTML and parsed."""
    made = make_report(paths, out, **options)
    html = out.read_bytes().decode("utf-8")
    return made, html, Parsed(html)


def figures(html):
    """Return the HTML of every figure by its title, each with a well-formed picture that is described."""
    found = {}
    for figure in re.findall(r"<figure>.*?</figure>", html, re.DOTALL):
        ET.fromstring(re.search(r"<svg.*</svg>", figure)[0])
        assert re.search(r'<svg [^>]*role="img" aria-label="[^"]{20,}"><title>', figure)
        assert "nan" not in figure.lower().replace("dominan", "")
        found[re.search("<h3>(.*?)</h3>", figure)[1]] = figure
    return found


def cells(html):
    """Return the texts of a table, row by row."""
    rows = re.findall(r"<tr>(.*?)</tr>", html, re.DOTALL)
    return [[re.sub("<[^>]*>", "", cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in rows]
