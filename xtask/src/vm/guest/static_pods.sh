# A kubelet without a control plane, under systemd, through its whole life.
mkdir -p "$manifests"
cp /root/web.yaml /root/exact.yaml /root/idle.yaml "$manifests"
equal "file system of the cgroups" cgroup2fs "$(stat --file-system --format %T /sys/fs/cgroup)"

# Pods run and are served.
systemctl start kubelet.service
wait_for "the kubelet is healthy" is_healthy
wait_for "pod web is ready" is_ready web
wait_for "pod exact is ready" is_ready exact
wait_for "pod idle is ready" is_ready idle
wait_for "pod web answers" curl --silent --fail "http://$(pod web .status.podIP):8080/"

# Cgroups are slices of systemd's, named and set as upstream does it: 2 processors, and what the manifests say.
burstable=$all_pods/kubepods-burstable.slice
besteffort=$all_pods/kubepods-besteffort.slice
web=$(slice_of web burstable)
exact=$(slice_of exact "")
idle=$(slice_of idle besteffort)
for slice in "$all_pods" "$burstable" "$besteffort" "$web" "$exact" "$idle"; do
    must "systemd knows $(basename "$slice")" is_unit "$slice"
done
for name in web exact idle; do
    eval "slice=\$$name"
    equal "cgroup of pod $name's container" "$slice/cri-containerd-$(container_of $name).scope" "$(cgroup_of "$(process_of $name)")"
done
memory=$(($(sed -n 's/^MemTotal: *\([0-9]*\) kB/\1/p' /proc/meminfo) * 1024))
container=$(settings "$(cgroup_of "$(process_of web)")")
equal "quota and memory of pod web's container" "cpu 50000 100000, memory 67108864" "${container#*, }"
# The weight of a class follows its pods; upstream looks every minute.
wait_for_settings "$all_pods" "weight 79, cpu max 100000, memory $memory"
wait_for_settings "$burstable" "weight 4, cpu max 100000, memory max"
wait_for_settings "$besteffort" "weight 1, cpu max 100000, memory max"
wait_for_settings "$web" "weight 4, cpu 50000 100000, memory 67108864"
wait_for_settings "$exact" "weight 10, cpu 26000 100000, memory 33554432"
wait_for_settings "$idle" "weight 1, cpu max 100000, memory max"
# systemd writes a unit's settings again when it reads its units: it has to know them too.
settings_before=$(all_settings)
must "systemd reads its units again" systemctl daemon-reload
equal "settings of all slices" "$settings_before" "$(all_settings)"
# A new upstream kubelet takes the weight from the burstable class, and gives it back at its next look; ours never does.
have_settings_before() { [ "$(all_settings)" = "$settings_before" ]; }
settings_stay() {
    [ "$kind" = upstream ] || equal "settings of all slices" "$settings_before" "$(all_settings)"
    wait_for "all slices have their settings" have_settings_before
}

# A container that dies is started again, as another one.
container=$(container_of web)
kill -9 "$(process_of web)"
has_restarted() { [ "$(restarts_of web)" = 1 ] && is_ready web && [ "$(container_of web)" != "$container" ]; }
wait_for "pod web has restarted once" has_restarted

# The agent dies: systemd starts it again, and no container notices.
web_before="$(container_of web) $(process_of web)"
idle_before="$(container_of idle) $(process_of idle)"
exact_before="$(container_of exact) $(process_of exact)"
agent_before=$(agent)
kill -9 "$agent_before"
are_ready() { is_ready web && is_ready exact && is_ready idle; }
is_another() { [ "$(agent)" != 0 ] && [ "$(agent)" != "$agent_before" ] && is_healthy && are_ready; }
wait_for "another kubelet runs and says that all pods are ready" is_another
equal "pod web's container and process" "$web_before" "$(container_of web) $(process_of web)"
equal "pod idle's container and process" "$idle_before" "$(container_of idle) $(process_of idle)"
equal "pod exact's container and process" "$exact_before" "$(container_of exact) $(process_of exact)"
equal "pod web's restarts" 1 "$(restarts_of web)"
settings_stay

# The unit can be restarted and stopped: systemd need not use force, and nothing of it stays.
agent_before=$(agent)
must "the unit restarts" systemctl restart kubelet.service
wait_for "another kubelet runs and says that all pods are ready" is_another
equal "pod web's container and process" "$web_before" "$(container_of web) $(process_of web)"
settings_stay
# Ours has a keeper of connections beside it, and one only, after two ends of the agent.
processes=1
[ "$kind" = upstream ] || processes=2
equal "processes of the unit" "$processes" "$(unit_processes | wc -l)"
must "the unit stops" systemctl stop kubelet.service
equal "how the unit ended" success "$(systemctl show --property Result --value kubelet.service)"
equal "processes of the unit" "" "$(unit_processes)"
equal "processes of its program" "" "$(pgrep --full 'bin/kubelet|keep-connections')"
equal "what systemd had to kill" "" "$(journalctl --unit kubelet.service --output cat --grep 'with signal SIGKILL' --quiet)"
must "pod web's process lives on" test -d "/proc/${web_before#* }"

# What is no longer wanted ends, here and in the runtime.
must "the unit starts again" systemctl start kubelet.service
wait_for "it says that all pods are ready" is_another
equal "pod web's container and process" "$web_before" "$(container_of web) $(process_of web)"
rm "$manifests/web.yaml" "$manifests/exact.yaml"
is_gone() {
    [ -z "$(pod web .metadata.name)" ] && is_healthy && [ ! -d "/proc/${web_before#* }" ] &&
        ! ctr --namespace k8s.io tasks list | grep -q "${web_before% *}"
}
wait_for "pod web is gone" is_gone
must "pod idle is still ready" is_ready idle
has_no_slice() { [ ! -e "$1" ] && ! is_unit "$1" && ! systemctl list-units --all --plain | grep -q "$(basename "$1")"; }
wait_for "the slice of pod web is gone" has_no_slice "$web"
wait_for "the slice of pod exact is gone" has_no_slice "$exact"
must "the slice of its class stays" is_unit "$burstable"
wait_for_settings "$burstable" "weight 1, cpu max 100000, memory max"
must "pod idle is in its slice" is_unit "$idle"
step "done"
