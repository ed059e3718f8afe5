# Words for the steps of stories. STORY is the pod that is meant where none is named.
set -eu
kubectl() { command kubectl --namespace stories "$@"; }
crictl() { command crictl --timeout=60s "$@"; }
container() { crictl ps -a -q --latest --label "io.kubernetes.pod.name=${2-$STORY}" --name "^$1\$"; }
sandbox() { crictl pods -q --latest --label "io.kubernetes.pod.name=${1-$STORY}"; }
# The process of a container, and of the sandbox.
process() { crictl inspect -o go-template --template '{{.info.pid}}' "$(container "$@")"; }
pause() { crictl inspectp -o go-template --template '{{.info.pid}}' "$(sandbox "$@")"; }
# Waiting for what containers write into the story's diary.
until_written() { for try in $(seq 1800); do grep -qs "$1" "$ROOM/diary" && return; sleep 0.1; done; echo "never written: $1" >&2; exit 1; }
until_lines() { for try in $(seq 1800); do test "$(cat "$ROOM/diary" 2> /dev/null | wc -l)" -ge "$1" && return; sleep 0.1; done; echo "never $1 lines" >&2; exit 1; }
until_ready() { kubectl wait "pod/${1-$STORY}" --for=condition=Ready --timeout=60s; }
patch() { kubectl patch pod "$STORY" --type=strategic --patch "$1"; }
patch_status() { kubectl patch pod "$STORY" --subresource=status --type=strategic --patch "$1"; }
