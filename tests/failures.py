"""What the failed tests said: failures.py TESTLOG.json

CI shows the end of its log; the logs that meson prints stand before the list of tests. Of each test: the lines that name what failed in it
(a golden, a case of a script, a function of a test program), and its last lines."""
import json
import sys

NAMED, LAST = 10, 20  # lines

with open(sys.argv[1], encoding="utf-8") as log:
    for test in map(json.loads, log):
        if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
            said = (test.get("stdout", "") + test.get("stderr", "")).splitlines()
            last = said[-LAST:]
            named = [line for line in dict.fromkeys(said[:-LAST]) if "FAILED" in line and line not in last]
            print("", test["name"], *named[:NAMED], *[f"and {len(named) - NAMED} more"] * (len(named) > NAMED), *last, sep="\n    ")
