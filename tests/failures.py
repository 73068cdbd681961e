"""What the failed tests said last: failures.py TESTLOG.json

CI shows the end of its log; the logs that meson prints stand before the list of tests."""
import json
import sys

with open(sys.argv[1], encoding="utf-8") as log:
    for test in map(json.loads, log):
        if test["result"] not in ("OK", "EXPECTEDFAIL", "SKIP"):
            said = (test.get("stdout", "") + test.get("stderr", "")).splitlines()
            print("", test["name"], *said[-20:], sep="\n    ")
