#!/bin/sh
# A test that is skipped where the build has sanitizers: programs that link or load an instrumented runtime in their own way do not
# start there.
echo 'skipped: not in a build with sanitizers'
exit 77
