#!/bin/sh
# Stands in for systemctl: knows the units that the systemd-run beside it made, and the verbs that the node suite uses.
set -eu
units='@UNITS@'

pid() { cat "$units/$1/pid" 2>/dev/null || :; }

running() {
    number=$(pid "$1")
    [ -n "$number" ] && [ -d "/proc/$number" ] && ! grep -q '^State:.Z' "/proc/$number/status" 2>/dev/null
}

start() {
    running "$1" && return
    dir=$units/$1
    [ -f "$dir/command" ] || { echo "Unit $1.service not found." >&2; exit 5; }
    set --
    while IFS= read -r word; do set -- "$@" "$word"; done <"$dir/command"
    cd "$(cat "$dir/folder")"
    # A session of its own: it lives on when the caller and its terminal are gone.
    setsid "$@" </dev/null >>"$(cat "$dir/log")" 2>&1 &
    echo $! >"$dir/pid"
}

# TERM, and KILL after the time that systemd gives a unit.
end() {
    running "$1" || return 0
    kill -TERM "$(pid "$1")" 2>/dev/null || :
    left=900
    while running "$1"; do
        [ $left -gt 0 ] || kill -KILL "$(pid "$1")" 2>/dev/null || :
        left=$((left - 1))
        sleep 0.1
    done
}

list() {
    for dir in "$units"/*/; do
        name=$(basename "$dir")
        case $name.service in $1) ;; *) continue ;; esac
        if running "$name"; then
            echo "  $name.service loaded active running $name"
        elif [ "$2" = all ]; then
            echo "  $name.service loaded active exited $name"
        fi
    done
}

verb='' unit='' signal=TERM property='' state=all
while [ $# -gt 0 ]; do
    case $1 in
    --state=*) state=${1#--state=} ;;
    --signal=*) signal=${1#--signal=} ;;
    --property=*) property=${1#--property=} ;;
    -s) shift; signal=$1 ;;
    -p | -P) shift; property=$1 ;;
    -*) ;;
    *) if [ -z "$verb" ]; then verb=$1; else unit=${1%.service}; fi ;;
    esac
    shift
done
case $verb in
start) start "$unit" ;;
stop) end "$unit"; [ -z "$unit" ] || rm -rf "${units:?}/$unit" ;;
restart) end "$unit"; start "$unit" ;;
kill) running "$unit" && kill -"${signal#SIG}" "$(pid "$unit")" ;;
reset-failed | daemon-reload | mask | unmask) ;;
is-active) if running "$unit"; then echo active; else echo inactive; exit 3; fi ;;
list-units) list "$unit" "$state" ;;
show) [ "$property" != MainPID ] || echo "MainPID=$(pid "$unit")" ;;
*) echo "the stand-in for systemctl does not know: $verb" >&2; exit 1 ;;
esac
