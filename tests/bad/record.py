"""Appends a row to the table of docs/measured/robustness.md."""
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def record(what, cases, seconds, findings, corpus=""):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    row = f"| {time.strftime('%Y-%m-%d')} | {commit} | {what} | {cases} | {seconds:.0f} | {corpus} | {findings} |\n"
    with open(ROOT / "docs" / "measured" / "robustness.md", "a", encoding="utf-8") as table:
        table.write(row)
    print(row, end="")
