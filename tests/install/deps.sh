#!/bin/sh
# install-deps.sh waits while another program has one of apt's locks, and gives up on anything else: deps.sh ROOT
#
# apt-get, dpkg-query, id and sleep are stand-ins; apt-get fails as often as the file `fail` has lines, each with the line as
# what it says.
set -eu

root=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin"

stand_in() {
    cat >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}
stand_in dpkg-query <<'STAND_IN'
#!/bin/sh
exit 1
STAND_IN
stand_in id <<'STAND_IN'
#!/bin/sh
echo 0
STAND_IN
stand_in sleep <<'STAND_IN'
#!/bin/sh
echo "sleep $*" >>"$WORK/calls"
STAND_IN
stand_in apt-get <<'STAND_IN'
#!/bin/sh
echo "apt-get $1" >>"$WORK/calls"
[ -s "$WORK/fail" ] || exit 0
head -n 1 "$WORK/fail" >&2
sed -i 1d "$WORK/fail"
exit 100
STAND_IN

export WORK="$work" PATH="$work/bin:$PATH"

# CASE EXIT CALLS, what apt-get says at first on stdin
check() {
    cat >"$work/fail"
    : >"$work/calls"
    status=0
    "$root/install-deps.sh" >"$work/out" 2>&1 || status=$?
    calls=$(tr '\n' ';' <"$work/calls")
    [ "$status" = "$2" ] && [ "$calls" = "$3" ] && return
    printf '%s: exit %s, calls %s\n' "$1" "$status" "$calls"
    cat "$work/out"
    exit 1
}

check 'no lock' 0 'apt-get update;apt-get install;' </dev/null
check 'locks of lists and of dpkg' 0 'apt-get update;sleep 5;apt-get update;sleep 5;apt-get update;apt-get install;' <<'SAID'
E: Could not get lock /var/lib/apt/lists/lock. It is held by process 4242 (apt-get)
E: Unable to acquire the dpkg frontend lock (/var/lib/dpkg/lock-frontend), is another process using it?
SAID
grep -q '^waiting for another program .*' "$work/out"
grep -q 'held by process 4242 (apt-get)' "$work/out"
check 'a package that is not there' 1 'apt-get update;' <<'SAID'
E: Unable to locate package libdnnl-dev
SAID
grep -q 'Unable to locate' "$work/out"
