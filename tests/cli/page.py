"""show --html: the page holds what show --json prints, names cannot add elements to it, and it loads nothing.
--browser: the page is opened in headless Chromium, which must run its script without a message on the console, and draw
each part; skipped where there is none."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import parser_of, skip  # noqa: E402

HOSTILE = """rankc-ir 1
graph "g</script><script>alert(1)</script>" level=IMPORTED
input %0 "a</script><img src=x onerror=alert(1)>" f32[2,4]
const %1 "<!--<script>" f32[4,4] = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]
%2 "\\x01\\x22\\xff&amp;" = MatMul(%0, %1) node="<b>bold</b>/]]>/${data}"
%3 "y" = Exp(%2) node="</title><iframe src=http://example.org>"
output %3 "y"
"""
TRAINED = Path(__file__).resolve().parent.parent / "training/gpt2/model.onnx"
SEARCHED = ["--pas", "autodist", "--plan-ngpus", "2", "--machine", "h100", "--require", "tensor"]
PIPELINE = [TRAINED, "--pas", "hybrid:tensor=2,pipeline=2", "--train", "--accumulate", "4", "--machine", "h100"]
TAGS = set("html head meta title style body header h1 h2 p noscript div section b span i table tr th td details summary "
           "script svg polygon".split())
EMPTY = {"meta", "link", "br", "img", "input"}


class Page(HTMLParser):
    """The elements as (tag, attributes, text), and the text of the page without scripts and styles."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.open, self.text = [], [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.elements.append([tag, dict(attributes), ""])
        if tag not in EMPTY:
            self.open.append(self.elements[-1])

    def handle_endtag(self, tag):
        while self.open and self.open.pop()[0] != tag:
            pass

    def handle_data(self, text):
        for element in self.open:
            element[2] += text
        if not self.open or self.open[-1][0] not in ("script", "style"):
            self.text.append(text)

    def all(self, tag):
        return [e for e in self.elements if e[0] == tag]

    def by_id(self, name):
        return next((e for e in self.elements if e[1].get("id") == name), None)


def show(rankc, model, page):
    """The page's text, and what show --json prints."""
    command = [rankc, "show", *map(str, model), "--html", page, "--json"]
    printed = subprocess.run(command, capture_output=True, check=True).stdout
    return page.read_text(encoding="utf-8"), json.loads(printed)


def check_page(text, data):
    page = Page(text)
    for tag in ("img", "iframe", "b", "link"):
        assert not page.all(tag), f"a {tag} element: {page.all(tag)}"
    held, code = page.all("script")
    assert json.loads(held[2]) == data, "the page's data are not those of --json"
    assert "</" not in held[2] and "<!" not in held[2]
    assert "default-src 'none'" in page.all("meta")[-1][1]["content"]
    for element in page.elements:
        assert not {"src", "href"} & element[1].keys(), f"the page loads {element}"
    assert "http:" not in code[2].replace("http://www.w3.org/2000/svg", "")


def check_live(data):
    """The curve of each rank stays below its memory, and comes to its activations unless those lie elsewhere."""
    assert data["live"]
    for live in data["live"]:
        memory = data["ranks"][live["rank"]]["memory"]
        most = max(map(sum, zip(live["activations"], live["communication"])))
        assert 0 < most + live["held"] <= memory["activations"] + memory["communication"], live


def check_drawn(browser, work, path, data, sections):
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={work}/profile",
               "--enable-logging=stderr", "--window-size=400,800", "--dump-dom", path.as_uri()]
    done = subprocess.run(command, capture_output=True, timeout=100, env={**os.environ, "HOME": str(work)})
    console = [line for line in done.stderr.decode(errors="replace").splitlines() if "CONSOLE" in line]
    assert done.returncode == 0 and not console, console or done.stderr
    page = Page(done.stdout.decode(errors="replace"))
    drawn = {e[1]["id"] for e in page.all("section")}
    assert drawn == set(sections), f"sections {drawn}"
    assert page.by_id("model")[2] == data["model"], page.by_id("model")
    assert len(page.all("script")) == 2 and {e[0] for e in page.elements} <= TAGS, {e[0] for e in page.elements} - TAGS
    return page


def main():
    parser = parser_of(__doc__)
    parser.add_argument("--browser", action="store_true")
    args = parser.parse_args()
    browser = shutil.which("chromium")
    if args.browser and not browser:
        skip("there is no chromium")
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        (work / "g<i>.rir").write_text(HOSTILE)
        hostile = show(args.rankc, [work / "g<i>.rir", *SEARCHED], work / "hostile.html")
        training = show(args.rankc, PIPELINE, work / "training.html")
        if not args.browser:
            check_page(*hostile)
            check_page(*training)
            check_live(training[1])
            check_live(hostile[1])
            refused = subprocess.run([args.rankc, "show", TRAINED, "--html", work / "none/x.html"], capture_output=True)
            assert refused.returncode == 6 and b"E0611" in refused.stderr, refused
            return 0
        page = check_drawn(browser, work, work / "hostile.html", hostile[1], ["memory", "live", "communication", "estimate", "alternatives", "nodes"])
        assert "taken" in "".join(page.text) and all(p["options"] in "".join(page.text) for p in hostile[1]["search"]["plans"])
        assert "</title><iframe" in "".join(page.text), "the name of a node is not in the page"
        page = check_drawn(browser, work, work / "training.html", training[1],
                           ["memory", "live", "communication", "schedule", "estimate", "nodes", "parameters"])
        runs = [e for e in page.elements if "run" in e[1].get("class", "").split()]
        assert len(runs) == 2 * 2 * 4, f"{len(runs)} entries of the timeline, for 2 stages and 4 micro-batches"
        timeline = training[1]["schedule"]["runs"]
        end = max(run[4] for stage in timeline for run in stage)
        drawn = [float(re.search(r"width: ([\d.]+)%", run[1]["style"])[1]) for run in runs]
        wanted = [100 * (run[4] - run[3]) / end for stage in timeline for run in stage]
        assert all(abs(a - b) < 1e-3 for a, b in zip(drawn, wanted)), (drawn, wanted)
        assert "Backward pass and update" in "".join(page.text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
