# Helpers for scripts in the machine: `. /usr/local/lib/crablet-vm/lib.sh`

# How long each event may take. Emulation is slow, and a deadline is no measurement.
patience=180

now() { cut -d. -f1 /proc/uptime; }

# step TEXT: says what was reached, with the seconds since boot.
step() { echo "[$(now) s] $*"; }

# fail TEXT: says why, shows what the node thought of it, and ends the script.
fail() {
    step "FAILED: $*"
    journalctl --no-pager --lines 40 --output cat --unit kubelet.service 2>&1 | cut -c 1-400
    exit 1
}

# wait_for TEXT COMMAND...: until the command succeeds; says when. The deadline passed: the script ends.
wait_for() {
    what=$1
    shift
    end=$(($(now) + patience))
    until "$@" >/dev/null 2>&1; do
        [ "$(now)" -lt "$end" ] || fail "after $patience s still not: $what"
        sleep 0.5
    done
    step "$what"
}

# must TEXT COMMAND...: the command succeeds now.
must() {
    what=$1
    shift
    "$@" >/dev/null || fail "$what: \`$*\` says no"
    step "$what"
}

# equal TEXT WANTED FOUND
equal() {
    [ "$2" = "$3" ] || fail "$1: wanted \`$2\`, found \`$3\`"
    step "$1: $3"
}

# reboot_machine: ends the script, and runs it from its beginning in the machine's next life. The disk stays.
reboot_machine() {
    step "rebooting"
    touch /run/crablet-vm-reboot
    exit 0
}
