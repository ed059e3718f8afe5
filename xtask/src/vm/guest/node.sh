# What scripts ask a node, on top of the test bed's helpers. `$kind` is `upstream` or `crablet`.
. /usr/local/lib/crablet-vm/lib.sh

manifests=/etc/kubernetes/manifests

# pod NAME FILTER: a field of a pod as the read-only port tells it; the node's name is part of a static pod's.
pod() {
    curl --silent --fail http://127.0.0.1:10255/pods |
        jq --raw-output ".items[] | select(.metadata.name == \"$1-vm\") | $2"
}

# The number in the address of the container, without `containerd://`.
container_of() { pod "$1" '.status.containerStatuses[0].containerID' | sed 's,.*://,,'; }

restarts_of() { pod "$1" '.status.containerStatuses[0].restartCount'; }

# The container's first process, as containerd knows it.
process_of() { ctr --namespace k8s.io tasks list | awk -v id="$(container_of "$1")" '$1 == id { print $2 }'; }

is_ready() { [ "$(pod "$1" '.status | "\(.phase) \(.containerStatuses[0].ready)"')" = "Running true" ]; }

is_healthy() { curl --silent --fail http://127.0.0.1:10248/healthz; }

agent() { systemctl show --property MainPID --value kubelet.service; }

# The processes of the agent's unit, itself and its helpers.
unit_processes() { cat /sys/fs/cgroup/system.slice/kubelet.service/cgroup.procs 2>/dev/null; }

all_pods=/sys/fs/cgroup/kubepods.slice

# slice_of NAME CLASS: the pod's slice, where upstream's systemd driver puts it; guaranteed pods have the class "".
slice_of() {
    name=$(pod "$1" '.metadata.annotations["kubernetes.io/config.hash"] // .metadata.uid' | tr - _)
    if [ -z "$2" ]; then
        echo "$all_pods/kubepods-pod$name.slice"
    else
        echo "$all_pods/kubepods-$2.slice/kubepods-$2-pod$name.slice"
    fi
}

# The cgroup folder of a process.
cgroup_of() { echo "/sys/fs/cgroup$(sed -n 's/^0:://p' "/proc/$1/cgroup")"; }

# settings FOLDER: the weight, the quota and the memory that the kernel goes by.
settings() { echo "weight $(cat "$1/cpu.weight"), cpu $(cat "$1/cpu.max"), memory $(cat "$1/memory.max")"; }

has_settings() { [ "$(settings "$1")" = "$2" ]; }

# wait_for_settings FOLDER SETTINGS
wait_for_settings() {
    [ ! -d "$1" ] || has_settings "$1" "$2" || step "$(basename "$1") has not yet: $2, but: $(settings "$1")"
    wait_for "$(basename "$1"): $2" has_settings "$1" "$2"
}

# The settings of all slices of pods, a line each.
all_settings() {
    find "$all_pods" -name '*.slice' | sort | while read -r slice; do
        echo "$(basename "$slice"): $(settings "$slice")"
    done
}

# is_unit FOLDER: systemd knows the cgroup as a unit of its own.
is_unit() { systemctl is-active --quiet "$(basename "$1")"; }
