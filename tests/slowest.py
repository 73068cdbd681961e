"""The time that tests took, the longest first: slowest.py TESTLOG.json [COUNT]

Seconds of processors (timed.sh), seconds from begin to end, and the share of all processor time up to there."""
import json
import re
import sys


def processor_seconds(test):
    """Of the last line of what it said: minutes and seconds in user mode, and in the kernel."""
    found = re.search(r"^(\d+)m([\d.]+)s (\d+)m([\d.]+)s\n?\Z", test.get("stderr", ""), re.M)
    return 60 * (int(found[1]) + int(found[3])) + float(found[2]) + float(found[4]) if found else 0.0


with open(sys.argv[1], encoding="utf-8") as log:
    tests = sorted(((processor_seconds(test), test["duration"], test["name"]) for test in map(json.loads, log)), reverse=True)
count = int(sys.argv[2]) if len(sys.argv) > 2 else len(tests)
total, reached = sum(test[0] for test in tests), 0.0
for seconds, duration, name in tests[:count]:
    reached += seconds
    print(f"{seconds:7.1f} {duration:7.1f} {100 * reached / (total or 1):4.0f} %  {name}")
print(f"{total:7.1f} s of processors, {sum(test[1] for test in tests):.1f} s from begin to end, {len(tests)} tests")
