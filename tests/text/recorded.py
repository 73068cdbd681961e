#!/usr/bin/python3
"""Ids and texts of small tokenizers are those that the package `tokenizers` gave: recorded/, which package.py --record wrote.

    recorded.py --tokenize PROGRAM [NAME...]"""
import json
import os
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
from rankc_test import parser_of  # noqa: E402

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")


def differences(expected, got):
    """The names of what differs. Of a stream the number of characters of each step is recorded; the package's may have failed,
    and has fewer steps then."""
    wrong = [key for key in ("ids", "plain", "text", "skipped") if expected[key] != got.get(key)]
    stream, steps = got.get("stream", []), expected["stream"]
    if [len(step) for step in stream[:len(steps)]] != steps:
        wrong.append("stream")
    if len(steps) == len(expected["ids"]) and "".join(stream) != expected["text"]:
        wrong.append("stream")
    return wrong


def check(program, name):
    with open(os.path.join(RECORDED, f"{name}.jsonl"), encoding="ascii") as file:
        cases = [json.loads(line) for line in file]
    done = subprocess.run([program, os.path.join(RECORDED, f"{name}.json")], input="".join(case["line"] + "\n" for case in cases),
                          capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode or done.stderr or len(results) != len(cases):
        print(f"{name}: exit status {done.returncode}\n{done.stderr}")
        return 1
    wrong = 0
    for case, got in zip(cases, results):
        for key in differences(case, got):
            print(f"{name}: {bytes.fromhex(case['line'])!r}: {key}\n    recorded {case[key]}\n    now      {got.get(key, got)}")
            wrong += 1
    return wrong


def main():
    parser = parser_of(__doc__, rankc=False)
    parser.add_argument("--tokenize", required=True)
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    names = args.names or sorted(name[:-5] for name in os.listdir(RECORDED) if name.endswith(".json"))
    wrong = sum(check(args.tokenize, name) for name in names)
    print(f"{len(names)} tokenizers, {wrong} differences")
    return 1 if wrong or not names else 0


if __name__ == "__main__":
    sys.exit(main())
