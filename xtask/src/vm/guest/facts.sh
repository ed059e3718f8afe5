# The script that runs when none is given: static pods under a kubelet that systemd runs, and what the node looks like.
mkdir -p "$manifests"
cp /root/web.yaml /root/exact.yaml /root/idle.yaml "$manifests"
equal "file system of the cgroups" cgroup2fs "$(stat --file-system --format %T /sys/fs/cgroup)"
systemctl start kubelet.service
wait_for "the kubelet is healthy" is_healthy
wait_for "pod web is ready" is_ready web
wait_for "pod exact is ready" is_ready exact
wait_for "pod idle is ready" is_ready idle

process=$(process_of web)
step "pod web: process $process, address $(pod web .status.podIP)"
step "its cgroup: $(cgroup_of "$process")"
all_settings
systemd-cgls --no-pager --full --xattr=no --cgroup-id=no | cut -c 1-160
