#!/usr/bin/python3
"""docs/architecture.md names every folder of the product, tests/README.md those of the tests: each once, and none that is not there.

    architecture.py ROOT"""
import re
import sys
from pathlib import Path

PRODUCT = ("ir", "frontend", "passes", "codegen", "templates", "runtime", "share")


def list_faults(page, folders):
    """What is wrong with the list of folders of a page."""
    text = page.read_text(encoding="utf-8")
    listed = re.findall(r"^    ([\w/]+)/ {2,}\S", text[text.index("## Folders"):], re.M)
    there = {name for name in folders if not name.endswith("__pycache__")}
    yield from (f"{page.name}: {folder}/ is not listed" for folder in sorted(there - set(listed)))
    yield from (f"{page.name}: {folder}/ is listed, but not there" for folder in sorted(set(listed) - there))
    yield from (f"{page.name}: {folder}/ is listed twice" for folder in sorted(set(listed)) if listed.count(folder) > 1)


def main():
    root = Path(sys.argv[1])
    product = [str(path.relative_to(root)) for part in PRODUCT for path in [root / part, *(root / part).rglob("*")] if path.is_dir()]
    faults = list(list_faults(root / "docs/architecture.md", product))
    faults += list_faults(root / "tests/README.md", [path.name for path in (root / "tests").iterdir() if path.is_dir()])
    text = (root / "docs/architecture.md").read_text(encoding="utf-8")
    named = re.findall(rf"`((?:{'|'.join(PRODUCT)}|tests|docs)/[\w./-]+)`|\b(tests/\w+/\w+\.\w+)", text)
    faults += [f"{path} is named, but not there" for path in dict.fromkeys(filter(None, (a or b for a, b in named)))
               if not (root / path).exists() and "NAME" not in path]
    print("\n".join(faults) or f"{len(product)} folders of the product")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
