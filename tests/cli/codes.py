#!/usr/bin/python3
"""The codes of diagnostics: frontend/cli/explain/codes.def has a row for each that the sources use, and no other.

    codes.py ROOT

A use is a number from 200 that is an argument before an exit status, or of one of the functions below; and a
constant RT_CODE_NAME of the runtime."""
import pathlib
import re
import sys

ROOT = pathlib.Path(sys.argv[1])
FOLDERS = ("frontend", "ir", "passes", "codegen", "runtime")
CALL = r"\b(?:diag_warning|diag_errno|diag_refusal|lower_error|(?:CHECK_)?FAIL|refuse\w*|refused|check_range|fail\w*)\("


def uses():
    """(code, file)"""
    for path in sorted(p for folder in FOLDERS for p in (ROOT / folder).rglob("*.[ch]")):
        text = path.read_text(errors="replace")
        for code in re.findall(r"(?<![\w.])((?:[2-9]|11)\d\d),\s*EXIT_", text):
            yield int(code), path
        for call in re.finditer(CALL + r"([^;]*);", text):
            for code in re.findall(r"(?:^|,\s*)((?:[2-9]|11)\d\d)(?=,)", re.sub(r'"(?:[^"\\]|\\.)*"', '""', call.group(1))):
                yield int(code), path
        for code in re.findall(r"\bRT_CODE_\w+ = (\d+)", text):
            yield int(code), path


def main():
    table = (ROOT / "frontend/cli/explain/codes.def").read_text()
    rows = [int(code) for code in re.findall(r"^CODE\((\d+),", table, re.M)]
    found, wrong = {}, []
    for code, path in uses():
        found.setdefault(code, path)
        if code not in rows:
            wrong.append(f"E{code:04d}: no row; used in {path.relative_to(ROOT)}")
    texts = " ".join(p.read_text(errors="replace") for folder in FOLDERS for p in (ROOT / folder).rglob("*.[chd]*") if p.is_file()
                     and p.name != "codes.def")
    wrong += [f"E{code:04d}: a row, and no use" for code in rows if code not in found and not re.search(rf"\b{code}\b", texts)]
    if rows != sorted(set(rows)):
        wrong.append("the rows are not in order, or one is there twice")
    print("\n".join(sorted(set(wrong))) or f"{len(rows)} codes")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
