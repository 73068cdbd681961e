#!/bin/sh
# Runs a test, and says last what processor time this shell and the test with its children took, for slowest.py: timed.sh COMMAND...
status=0
"$@" || status=$?
times >&2
exit $status
