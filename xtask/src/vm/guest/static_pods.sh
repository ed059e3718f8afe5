# A kubelet without a control plane, under systemd, through its whole life.
mkdir -p "$manifests"
cp /root/web.yaml /root/idle.yaml "$manifests"
equal "file system of the cgroups" cgroup2fs "$(stat --file-system --format %T /sys/fs/cgroup)"
limit=$((64 * 1024 * 1024))

# Pods run, are served, and have their limits.
systemctl start kubelet.service
wait_for "the kubelet is healthy" is_healthy
wait_for "pod web is ready" is_ready web
wait_for "pod idle is ready" is_ready idle
wait_for "pod web answers" curl --silent --fail "http://$(pod web .status.podIP):8080/"
equal "memory limit of the container" "$limit" "$(cat "$(cgroup_of "$(process_of web)")/memory.max")"
if [ "$kind" = upstream ]; then
    must "systemd knows the slice of all pods" systemctl is-active --quiet kubepods.slice
    web_slice=$(slice_of web burstable)
    idle_slice=$(slice_of idle besteffort)
    equal "memory limit of the burstable pod" "$limit" "$(cat "$web_slice/memory.max")"
    equal "memory limit of the best-effort pod" max "$(cat "$idle_slice/memory.max")"
    equal "slice of the container" "$web_slice" "$(dirname "$(cgroup_of "$(process_of web)")")"
fi

# A container that dies is started again, as another one.
container=$(container_of web)
kill -9 "$(process_of web)"
has_restarted() { [ "$(restarts_of web)" = 1 ] && is_ready web && [ "$(container_of web)" != "$container" ]; }
wait_for "pod web has restarted once" has_restarted

# The agent dies: systemd starts it again, and no container notices.
web_before="$(container_of web) $(process_of web)"
idle_before="$(container_of idle) $(process_of idle)"
agent_before=$(agent)
kill -9 "$agent_before"
is_another() { [ "$(agent)" != 0 ] && [ "$(agent)" != "$agent_before" ] && is_healthy && is_ready web && is_ready idle; }
wait_for "another kubelet runs and says that both pods are ready" is_another
equal "pod web's container and process" "$web_before" "$(container_of web) $(process_of web)"
equal "pod idle's container and process" "$idle_before" "$(container_of idle) $(process_of idle)"
equal "pod web's restarts" 1 "$(restarts_of web)"

# The unit can be restarted and stopped: systemd need not use force, and nothing of it stays.
agent_before=$(agent)
must "the unit restarts" systemctl restart kubelet.service
wait_for "another kubelet runs and says that both pods are ready" is_another
step "processes of the unit: $(unit_processes | wc -l)"
must "the unit stops" systemctl stop kubelet.service
equal "how the unit ended" success "$(systemctl show --property Result --value kubelet.service)"
equal "processes of the unit" "" "$(unit_processes)"
equal "processes of its program" "" "$(pgrep --full 'bin/kubelet|keep-connections')"
equal "what systemd had to kill" "" "$(journalctl --unit kubelet.service --output cat --grep 'with signal SIGKILL' --quiet)"
must "pod web's process lives on" test -d "/proc/${web_before#* }"

# What is no longer wanted ends, here and in the runtime.
must "the unit starts again" systemctl start kubelet.service
wait_for "it says that both pods are ready" is_another
equal "pod web's container and process" "$web_before" "$(container_of web) $(process_of web)"
rm "$manifests/web.yaml"
is_gone() {
    [ -z "$(pod web .metadata.name)" ] && is_healthy && [ ! -d "/proc/${web_before#* }" ] &&
        ! ctr --namespace k8s.io tasks list | grep -q "${web_before% *}"
}
wait_for "pod web is gone" is_gone
must "pod idle is still ready" is_ready idle
if [ "$kind" = upstream ]; then
    wait_for "the slice of pod web is gone" test ! -e "$web_slice"
fi
step "done"
