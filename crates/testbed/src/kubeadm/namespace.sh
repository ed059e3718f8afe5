# Runs a command with folders of its own at kubeadm's fixed places: namespace.sh ETC LIB WORK COMMAND...
# Layers over `/etc` and `/var/lib` make the mount points, so that the machine itself needs none.
set -eu
etc=$1 lib=$2 work=$3
shift 3
for place in /etc /var/lib; do
    layer=$work$place
    mkdir -p "$layer/upper" "$layer/work"
    mount -t overlay -o "lowerdir=$place,upperdir=$layer/upper,workdir=$layer/work" overlay "$place"
done
mkdir -p /etc/kubernetes /var/lib/kubelet
mount --bind "$etc" /etc/kubernetes
mount --bind "$lib" /var/lib/kubelet
exec "$@"
