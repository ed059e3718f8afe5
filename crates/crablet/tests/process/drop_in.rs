//! In the kubelet's place: the command lines, files and paths that others start it with, unchanged. Each test has file
//! systems and a network of its own for that, so that it may use the real paths and ports.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use crablet_testbed::process::output_of;

use super::support::{CRABLET, Running};

/// A certificate with its key, as PEM: good enough for an authority and for a node that nobody answers.
fn certificate() -> Result<(String, String)> {
    let made = rcgen::generate_simple_self_signed(["node1".to_owned()])?;
    Ok((made.cert.pem(), made.signing_key.serialize_pem()))
}

/// A kubeconfig as kubeadm writes it; nobody answers at the server's address.
fn kubeconfig(user: &str) -> Result<String> {
    let authority = BASE64_STANDARD.encode(certificate()?.0);
    Ok(format!(
        "apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster:
    certificate-authority-data: {authority}
    server: https://10.0.0.10:6443
contexts:
- name: node
  context: {{cluster: kubernetes, user: node}}
current-context: node
users:
- name: node
  user: {{{user}}}
"
    ))
}

const TOKEN: &str = "token: abcdef.0123456789abcdef";

/// A machine made of the real one with empty `/var/lib` and `/var/log`, changes to `/etc` that nobody else sees, and no
/// network but the loopback. `script` runs on it, and ends with `exec`.
fn machine(home: &Path, script: &str) -> Result<Running> {
    let script = format!(
        "set -e
mount --make-rprivate /
for folder in /var/lib /var/log; do mount -t tmpfs tmpfs $folder; done
mkdir /var/lib/upper /var/lib/work
mount -t overlay overlay -o lowerdir=/etc,upperdir=/var/lib/upper,workdir=/var/lib/work /etc
ip link set lo up
rm -rf /etc/kubernetes
{script}"
    );
    let mut command = Command::new("unshare");
    command.args(["--mount", "--net", "sh", "-c", &script]);
    command.env("FILES", home).env("CRABLET", CRABLET);
    Running::start(command, home)
}

/// What somebody on that machine gets from the port that kubeadm and node e2e poll.
fn healthz(agent: &Running) -> Result<String> {
    let ask = r"exec 3<>/dev/tcp/127.0.0.1/10248; printf 'GET /healthz HTTP/1.0\r\n\r\n' >&3; cat <&3";
    output_of(Command::new("nsenter").args([
        "--net",
        "--target",
        &agent.child.id().to_string(),
        "bash",
        "-c",
        ask,
    ]))
}

fn is_healthy(agent: &Running) -> Result<()> {
    agent.wait_ready()?;
    let answer = healthz(agent).with_context(|| agent.log().unwrap_or_default())?;
    ensure!(answer.starts_with("HTTP/1.0 200") && answer.ends_with("\r\n\r\nok"), "{answer}");
    Ok(())
}

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process/fixtures");
    fs::read_to_string(folder.join(name)).expect("a fixture")
}

/// What `kubeadm` leaves on a node, started as its packages' `10-kubeadm.conf` does.
const KUBEADM: &str = r#"
mkdir -p /etc/kubernetes/manifests /etc/kubernetes/pki /var/lib/kubelet
cp $FILES/ca.crt /etc/kubernetes/pki/ca.crt
cp $FILES/kubeadm-flags.env $FILES/config.yaml /var/lib/kubelet/ 2>/dev/null || true
for file in bootstrap-kubelet.conf kubelet.conf; do
    if [ -e $FILES/$file ]; then cp $FILES/$file /etc/kubernetes/; fi
done
KUBELET_KUBECONFIG_ARGS="--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
KUBELET_CONFIG_ARGS="--config=/var/lib/kubelet/config.yaml"
. /var/lib/kubelet/kubeadm-flags.env
exec $CRABLET $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

#[test]
fn kubeadms_unit_starts_it() -> Result<()> {
    let home = tempfile::tempdir()?;
    let write = |name: &str, text: &str| fs::write(home.path().join(name), text);
    write("ca.crt", &certificate()?.0)?;
    // As `kubeadm join --node-name` on a control plane writes it.
    write(
        "kubeadm-flags.env",
        "KUBELET_KUBEADM_ARGS=\"--hostname-override=node1 --register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule\"\n",
    )?;

    // Before `kubeadm init` or `join` there is no configuration: the unit ends at once, and is started again by systemd.
    let mut agent = machine(home.path(), KUBEADM)?;
    ensure!(agent.wait_end()?.code() == Some(1), "{}", agent.log()?);
    agent.wait_log(&["/var/lib/kubelet/config.yaml"])?;

    // While joining.
    // Test machines may have cgroup v1, which a node must be allowed to have.
    write("config.yaml", &format!("{}failCgroupV1: false\n", fixture("kubeadm.yaml")))?;
    write("bootstrap-kubelet.conf", &kubeconfig(TOKEN)?)?;
    let mut agent = machine(home.path(), KUBEADM)?;
    is_healthy(&agent)?;
    ensure!(agent.stop()?.success(), "{}", agent.log()?);

    // Joined: there is a certificate, and kubeadm has removed the bootstrap file.
    fs::remove_file(home.path().join("bootstrap-kubelet.conf"))?;
    let (chain, key) = certificate()?;
    let [chain, key] = [chain, key].map(|pem| BASE64_STANDARD.encode(pem));
    let user = format!("client-certificate-data: {chain}, client-key-data: {key}");
    write("kubelet.conf", &kubeconfig(&user)?)?;
    let mut agent = machine(home.path(), KUBEADM)?;
    is_healthy(&agent)?;
    ensure!(agent.stop()?.success(), "{}", agent.log()?);
    Ok(())
}

#[test]
fn node_e2es_command_line_starts_it() -> Result<()> {
    let home = tempfile::tempdir()?;
    fs::write(home.path().join("kubelet-config"), fixture("node-e2e.yaml"))?;
    fs::write(home.path().join("kubeconfig"), kubeconfig(TOKEN)?)?;
    let script = "
mkdir -p /var/lib/kubelet /var/lib/e2e/static-pods604095467 /var/lib/e2e/kubelet.conf.d
cd /var/lib/e2e
cp $FILES/kubeconfig $FILES/kubelet-config .
exec $CRABLET --kubeconfig /var/lib/e2e/kubeconfig --root-dir /var/lib/kubelet --v 4 \
    --feature-gates 'AllBeta=true' --config-dir /var/lib/e2e/kubelet.conf.d --hostname-override node \
    --container-runtime-endpoint unix:///var/lib/e2e/containerd.sock --config /var/lib/e2e/kubelet-config \
    --node-ip=10.213.7.1";
    let mut agent = machine(home.path(), script)?;
    is_healthy(&agent)?;
    ensure!(agent.stop()?.success(), "{}", agent.log()?);
    Ok(())
}
