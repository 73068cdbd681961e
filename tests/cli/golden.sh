#!/bin/sh
# Transcripts of rankc: golden.sh RANKC TRANSCRIPT [--bless]
#
# A transcript has lines "$ COMMAND", each followed by what the command prints (stdout, then stderr) and, unless that is
# 0, its exit code as "[2]". Lines "# ..." are remarks. Commands run in the transcript's directory; `rankc` is the program
# under test; $TMP is a directory of the test's own, shown as TMP. --bless writes what the commands print now. A difference
# ends with the commands that it is of.
set -eu

rankc=$(realpath "$1")
golden=$(realpath "$2")
mode=${3-}
own=$(mktemp -d)
trap 'rm -rf "$own"' EXIT
TMP=$own/tmp
mkdir "$TMP" "$own/bin"
ln -s "$rankc" "$own/bin/rankc"
PATH=$own/bin:$PATH
unset NO_COLOR XDG_CACHE_HOME
export PATH TMP TERM=dumb LC_ALL=C HOME="$TMP"
cd "$(dirname "$golden")"

actual=$own/actual
before=
while IFS= read -r line; do
    case $line in
    '$ '*)
        [ "$before" != command ] || printf '\n'
        before='command'
        printf '%s\n' "$line"
        status=0
        sh -c "${line#??}" >"$own/out" 2>"$own/err" </dev/null || status=$?
        cat "$own/out" "$own/err" | sed "s|$TMP|TMP|g"
        [ $status = 0 ] || printf '[%d]\n' $status
        ;;
    '# '*)
        [ "$before" != command ] || printf '\n'
        before=comment
        printf '%s\n' "$line"
        ;;
    esac
done <"$golden" >"$actual"

if [ "$mode" = --bless ]; then
    cp "$actual" "$golden"
else
    diff -u "$golden" "$actual" || {
        awk -v name="$(basename "$golden")" '
            FNR == 1 { file++; n = 0 }
            /^\$ / { command[++n] = $0 }
            { text[file, n] = text[file, n] $0 "\n" }
            END { for (i = 1; i in command; i++) if (text[1, i] != text[2, i]) print "FAILED: " name ": " command[i] }' "$golden" "$actual"
        exit 1
    }
fi
