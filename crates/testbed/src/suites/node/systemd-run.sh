#!/bin/sh
# Stands in for systemd-run: starts a command as a unit that the systemctl beside it knows.
set -eu
units='@UNITS@'
if [ "${1-}" = --version ]; then
    echo 'systemd 252 (stand-in)'
    exit 0
fi
unit=run-$$ log=/dev/null
while [ $# -gt 0 ]; do
    case $1 in
    -p)
        shift
        case $1 in
        StandardError=append:*) log=${1#StandardError=append:} ;;
        StandardError=file:*) log=${1#StandardError=file:} ;;
        esac
        ;;
    --unit=*) unit=${1#--unit=} ;;
    -*) ;;
    *) break ;;
    esac
    shift
done
dir=$units/${unit%.service}
mkdir -p "$dir"
printf '%s\n' "$log" >"$dir/log"
pwd >"$dir/folder"
# One word on each line; systemd wants its own signs doubled, the command wants them single.
for word; do printf '%s\n' "$word"; done | sed 's/%%/%/g; s/\$\$/$/g' >"$dir/command"
exec "$(dirname "$0")/systemctl" start "$unit"
