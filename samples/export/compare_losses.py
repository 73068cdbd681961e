"""compare_losses.py METRICS.jsonl EXPECTED.json: the largest relative difference of the losses. Exit status 1 if above 1e-5."""
import json
import sys

with open(sys.argv[1]) as metrics, open(sys.argv[2]) as expected:
    ours, theirs = [json.loads(line)["loss"] for line in metrics], json.load(expected)
assert len(ours) == len(theirs), (len(ours), len(theirs))
worst = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs))
print("equal to rounding" if worst <= 1e-5 else f"they differ: {worst:.2g}")
sys.exit(int(worst > 1e-5))
