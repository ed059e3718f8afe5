# A machine joins a cluster by `kubeadm join`, is a node for as long as the cluster's administrator wants, through a reboot
# too, and leaves by `kubeadm reset`. `$join` is the command that the administrator gave.
server=${join#kubeadm join }
server=${server%% *}
current=/var/lib/kubelet/pki/kubelet-client-current.pem
noted=/root/noted

property() { systemctl show --property "$1" --value kubelet.service; }

# node FILTER: a field of the node as the API server tells it to the node itself.
node() {
    curl --silent --fail --cacert /etc/kubernetes/pki/ca.crt --cert "$current" "https://$server/api/v1/nodes/worker" |
        jq --raw-output "$1"
}

is_ready_node() { [ "$(node '.status.conditions[] | select(.type == "Ready").status')" = True ]; }

# Two pods or more, each with its sandbox.
has_pods() { [ "$(find "$all_pods" -name 'cri-containerd-*.scope' | wc -l)" -ge 4 ]; }

containers() { ctr --namespace k8s.io tasks list | sort; }

# What the administrator wants next, who looks at all of it meanwhile.
wish() { node '.metadata.annotations["crablet.test/wish"]'; }

has_wish() { [ "$(wish)" = "$1" ] || [ "$(wish)" = give-up ]; }

wait_for_wish() {
    patience=600
    wait_for "the administrator wants something" has_wish "$1"
    patience=180
    equal "what the administrator wants" "$1" "$(wish)"
}

join_the_cluster() {
    # As the packages leave a machine: the kubelet finds no configuration, ends, and is tried again.
    must "the unit is enabled" systemctl --quiet enable kubelet.service
    systemctl start kubelet.service
    has_tried_again() { [ "$(property NRestarts)" -ge 1 ]; }
    wait_for "the kubelet without a configuration was started again" has_tried_again
    must "it had ended with an error" journalctl --quiet --unit kubelet.service --grep status=1/FAILURE

    step "$join"
    # shellcheck disable=SC2086 # It is a command with its arguments.
    $join --node-name worker || fail "kubeadm join"
    step "kubeadm join is done"
    must "the token is gone" test ! -e /etc/kubernetes/bootstrap-kubelet.conf
    must "the kubeconfig names the certificate" grep -q "$current" /etc/kubernetes/kubelet.conf
    must "the certificate is a link to the newest" test -L "$current"
    must "the unit runs" systemctl is-active --quiet kubelet.service
    must "kubeadm's flags are its own" grep -q hostname-override=worker "/proc/$(agent)/cmdline"
}

restart_the_kubelet() {
    before=$(containers)
    agent_before=$(agent)
    must "the unit restarts" systemctl restart kubelet.service
    is_another() { [ "$(agent)" != 0 ] && [ "$(agent)" != "$agent_before" ] && is_healthy; }
    wait_for "another kubelet is healthy" is_another
    must "the node is ready" is_ready_node
    equal "containers and their processes" "$before" "$(containers)"
}

leave_the_cluster() {
    kubeadm reset --force || fail "kubeadm reset"
    equal "the unit after a reset" inactive "$(systemctl is-active kubelet.service)"
    equal "how it ended" success "$(property Result)"
    equal "processes of its program" "" "$(pgrep --full 'bin/kubelet|keep-connections')"
    equal "containers" "" "$(ctr --namespace k8s.io containers list --quiet)"
    equal "mounts below the kubelet's folder" "" "$(grep /var/lib/kubelet /proc/mounts)"
    equal "what is left in the kubelet's folder" "" "$(ls -A /var/lib/kubelet)"
}

if [ ! -e "$noted" ]; then
    join_the_cluster
    wait_for "the node is ready" is_ready_node
    # They were there before the node was.
    wait_for "both pods run" has_pods
    wait_for_settings "$all_pods/kubepods-burstable.slice" "weight 4, cpu max 100000, memory max"
    all_settings | tee "$noted"
    restart_the_kubelet
    wait_for_wish reboot
    reboot_machine
fi

step "up again"
wait_for "the kubelet is healthy" is_healthy
wait_for "the node is ready" is_ready_node
wait_for "both pods run" has_pods
is_as_noted() { [ "$(all_settings | grep --count --fixed-strings --line-regexp --file "$noted")" = "$(wc -l <"$noted")" ]; }
wait_for "all slices have their settings again" is_as_noted
wait_for_wish leave
leave_the_cluster
step "done"
