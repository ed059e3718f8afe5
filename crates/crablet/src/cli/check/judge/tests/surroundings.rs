//! What is around the agent: the runtime, networks, disks, ports, names and files.

use super::*;
use State::{Error, Warning};

#[test]
fn runtimes() {
    check(&[
        ("socket", Error, "does not exist", "systemctl enable --now containerd", |m| {
            m.no_answers(Socket::Missing, &[])
        }),
        ("socket", Error, "does not exist", "--container-runtime-endpoint=unix:///run/crio/crio.sock", |m| {
            m.no_answers(Socket::Missing, &["/run/crio/crio.sock"]);
        }),
        ("socket", Error, "is not a socket", "", |m| m.no_answers(Socket::SomethingElse, &[])),
        ("socket", Error, "permission denied", "", |m| {
            m.no_answers(Socket::Unreadable("permission denied".into()), &[])
        }),
        ("socket", Error, "as it says", "hangs", |m| {
            m.answers().version = Err(refused(ErrorKind::DeadlineExceeded))
        }),
        ("socket", Error, "Permission denied", "run it as root", |m| {
            m.answers().version =
                Err(CriError::new(ErrorKind::Unavailable, "Permission denied (os error 13)"));
        }),
        ("socket", Error, "as it says", "disabled_plugins", |m| {
            m.answers().version = Err(refused(ErrorKind::Unimplemented));
        }),
        ("version", Error, "CRI v1alpha2", "CRI v1:", |m| {
            m.answers().version.as_mut().expect("a version").api_version = "v1alpha2".into();
        }),
        ("RuntimeReady", Error, "false, Why: because", "log", |m| m.condition(0, "Why", "because")),
        ("Deprecated", Warning, "false, Old: replace it", "configuration", |m| {
            let description = m.answers().description.as_mut().expect("a description");
            description.conditions.push(condition("Deprecated", false, "Old", "replace it"));
        }),
        ("Deprecated", Warning, "Old: this that", "", |m| {
            let description = m.answers().description.as_mut().expect("a description");
            description.conditions.push(condition("Deprecated", false, "Old", r#"{"a":"this","b":"that"}"#));
        }),
        ("events", Warning, "no event stream", "containerd 1.7", |m| {
            m.answers().events = Err(refused(ErrorKind::Unimplemented));
        }),
        ("sandbox image", Warning, "pause:3.10 is not here", "pull", |m| {
            m.answers().sandbox_image = Some(("pause:3.10".into(), Ok(false)));
        }),
        ("socket", Warning, "no answer within 5 s", "", |m| m.facts.runtime = Err(Unread::TooLate)),
    ]);
    check_fine(&[("handlers", "not reported", |m| {
        m.answers().description.as_mut().expect("a description").handlers.clear();
    })]);
}

#[test]
fn networks() {
    check(&[
        (
            "NetworkReady",
            Warning,
            "cni plugin not initialized",
            "/etc/cni/net.d, which is empty; in a cluster",
            |m| {
                m.condition(1, "NetworkPluginNotReady", "cni plugin not initialized");
                m.answers().cni.as_mut().expect("folders").configurations = Some(Vec::new());
            },
        ),
        (
            "NetworkReady",
            Error,
            "cni plugin not initialized",
            "wrong with /etc/cni/net.d/10-net.conflist",
            |m| {
                m.condition(1, "NetworkPluginNotReady", "cni plugin not initialized");
                m.standalone();
            },
        ),
        ("CNI plugins", Warning, "no `loopback`", "containernetworking-plugins", |m| {
            m.answers().cni.as_mut().expect("folders").plugins = Some(Vec::new());
        }),
        ("CNI plugins", Warning, "cannot be listed", "", |m| {
            m.answers().cni.as_mut().expect("folders").plugins = None
        }),
        ("forwarding", Error, "net.ipv4.ip_forward is 0", "sysctl -w net.ipv4.ip_forward=1", |m| {
            m.sysctl("net.ipv4.ip_forward", 0);
        }),
        ("forwarding", Warning, "net.ipv4.ip_forward is 0", "", |m| {
            m.standalone();
            m.sysctl("net.ipv4.ip_forward", 0);
        }),
        ("forwarding", Error, "net.ipv6.conf.all.forwarding is 0", "", |m| {
            m.wanted.pod_cidr = Some("fd00::/64".into());
            m.sysctl("net.ipv6.conf.all.forwarding", 0);
        }),
        ("bridges", Warning, "not loaded", "modprobe br_netfilter", |m| {
            m.facts.sysctls.as_mut().expect("sysctls").remove("net.bridge.bridge-nf-call-iptables");
        }),
        ("bridges", Warning, "not seen by iptables", "bridge-nf-call-iptables=1", |m| {
            m.sysctl("net.bridge.bridge-nf-call-iptables", 0);
        }),
        ("conntrack", Warning, "soon be dropped", "nf_conntrack_max=524288", |m| {
            m.sysctl("net.netfilter.nf_conntrack_count", 262_000);
        }),
        ("packet rules", Warning, "neither", "nftables", |m| m.facts.tools = Ok(Vec::new())),
    ]);
}

#[test]
fn disks() {
    check(&[
        ("root space", Error, "less than nodefs.available of 10%", "make room", |m| {
            m.disk(0).space.free = 9 << 30
        }),
        ("pod logs space", Error, "/var/log/pods: 9.0 GiB", "make room", |m| m.disk(1).space.free = 9 << 30),
        ("images space", Error, "imagefs.available of 15%", "", |m| m.disk(2).space.free = 14 << 30),
        ("images space", Warning, "85% used", "unused images", |m| m.disk(2).space.free = 15 << 30),
        ("root inodes", Error, "49 of 1000 free", "", |m| m.disk(0).inodes.free = 49),
        ("root mount", Error, "read-only", "remount,rw", |m| m.mount().options = texts("ro")),
        ("root mount", Error, "read-only", "", |m| m.mount().super_options = texts("ro")),
        ("root mount", Warning, "noexec and nosuid", "remount", |m| {
            m.mount().options = texts("rw nosuid noexec")
        }),
        ("root propagation", Warning, "not shared", "mount --make-rshared /", |m| m.mount().shared = false),
        ("root /var/lib/kubelet", Warning, "no answer within 5 s", "hung mount", |m| {
            m.facts.disks[0].state = Err(Unread::TooLate);
        }),
    ]);
    check_fine(&[
        ("root space", "9.0 GiB", |m| {
            m.wanted.eviction_hard.insert("nodefs.available".into(), "5Gi".into());
            m.disk(0).space.free = 9 << 30;
        }),
        ("images space", "", |m| m.disk(2).inodes = Amount::default()),
    ]);
}

#[test]
fn ports_and_other_agents() {
    check(&[
        ("10250 API", Error, "held by `nginx` (pid 42)", "another port", |m| {
            m.held("127.0.0.1", 10250, Some(process("nginx", "nginx")));
        }),
        ("10248 healthz", Error, "could not be found out", "ss -ltnp sport = :10248", |m| {
            m.held("::", 10248, None)
        }),
        ("10250 API", Error, "another kubelet runs", "systemctl disable --now kubelet", |m| {
            m.held("0.0.0.0", 10250, Some(process("kubelet", "kubelet --v=2")));
        }),
        ("10250 API", Warning, "the agent runs already", "", |m| {
            m.held("0.0.0.0", 10250, Some(process("crablet", "crablet --config x")));
        }),
        ("other agents", Warning, "`kubelet` (pid 42)", "one agent per node", |m| {
            m.facts.processes.as_mut().expect("processes").push(process("kubelet", "kubelet"));
        }),
        ("ports", Warning, "could not be read", "", |m| {
            m.facts.listeners = Err(Unread::Failed("gone".into()))
        }),
    ]);
    check_fine(&[
        ("10248 healthz", "free", |m| m.held("192.0.2.1", 10248, None)),
        ("other agents", "none", |m| {
            m.facts
                .processes
                .as_mut()
                .expect("processes")
                .push(process("crablet", "crablet keep-connections"));
        }),
    ]);
}

#[test]
fn names_and_resolvers() {
    check(&[
        ("node name", Warning, "localhost", "--hostname-override", |m| {
            m.wanted.node_name = "localhost".into()
        }),
        ("node name", Warning, "too long", "", |m| m.wanted.node_name = "a".repeat(64)),
        ("machine id", Warning, "empty", "systemd-machine-id-setup", |m| {
            m.facts.machine_id = Ok(String::new())
        }),
        ("machine id", Warning, "`uninitialized`", "", |m| m.facts.machine_id = Ok("uninitialized".into())),
        ("machine id", Warning, "gone", "", |m| m.facts.machine_id = Err(Unread::Failed("gone".into()))),
        ("resolver", Error, "could not be read: gone", "resolvConf", |m| {
            m.facts.resolv_conf = Err(Unread::Failed("gone".into()));
        }),
        ("resolver", Warning, "127.0.0.53", "/run/systemd/resolve/resolv.conf", |m| {
            m.resolver("nameserver 127.0.0.53")
        }),
        ("resolver", Warning, "::1", "ask itself", |m| m.resolver("nameserver 10.0.0.1\nnameserver ::1")),
        ("resolver", Warning, "names no server", "nameserver", |m| m.resolver("search a.example")),
        ("resolver", Warning, "names 4 servers", "", |m| {
            m.resolver("nameserver 1.0.0.1\nnameserver 1.0.0.2\nnameserver 1.0.0.3\nnameserver 1.0.0.4");
        }),
        ("resolver", Warning, "searches 33 domains", "32", |m| {
            m.resolver(&format!("nameserver 1.0.0.1\nsearch{}", " a.example".repeat(33)));
        }),
    ]);
    check_fine(&[("resolver", "none wanted", |m| {
        m.wanted.resolv_conf = None;
        m.resolver("");
    })]);
}

#[test]
fn manifests_and_credentials() {
    fn mode(m: &mut Machine, uid: u32, gid: u32, mode: u32) {
        m.facts.static_pods = Ok(Some(Owned { uid, gid, mode, folder: true }));
    }
    check(&[
        ("static pods", Warning, "does not exist", "mkdir -p /etc/kubernetes/manifests", |m| {
            m.facts.static_pods = Ok(None)
        }),
        ("static pods", Error, "mode 0777", "chmod go-w", |m| mode(m, 0, 0, 0o040_777)),
        ("static pods", Error, "mode 0775", "chmod go-w", |m| mode(m, 0, 1000, 0o040_775)),
        ("static pods", Warning, "user 1000", "chown root:root", |m| mode(m, 1000, 0, 0o040_755)),
        ("kubeconfig", Error, "gone", "kubeadm join", |m| {
            m.facts.credentials.kubeconfig = Some(Err(Unread::Failed("gone".into())));
        }),
        ("kubeconfig", Error, "names no server", "current-context", |m| {
            m.facts.credentials.kubeconfig = Some(Ok(Kubeconfig::default()));
        }),
        ("kubeconfig", Warning, "does not verify https://api:6443", "certificate-authority", |m| {
            m.kubeconfig().insecure = true;
        }),
        ("kubeconfig", Warning, "nothing about who", "token", |m| m.kubeconfig().identity = Identity::None),
        ("serving key", Error, "gone", "PEM", |m| {
            let owned = Err(Unread::Failed("gone".into()));
            m.facts.credentials.secrets.push(Secret { role: "serving key", path: "/key".into(), owned });
        }),
        ("client CA", Error, "expired on 2026-11-14", "renew the CA", |m| {
            m.facts.credentials.certificates = vec![certificate("client CA", "2026-11-14T08:00:00Z")];
        }),
        ("client certificate", Warning, "expires on 2026-11-20", "renew it", |m| {
            m.facts.credentials.certificates =
                vec![certificate("client certificate", "2026-11-20T08:00:00Z")];
        }),
        ("client CA", Error, "not a PEM file", "PEM", |m| {
            m.facts.credentials.certificates[0].validity = Err(Unread::Failed("not a PEM file".into()));
        }),
        ("kubeconfig mode", Warning, "mode 0644", "chmod 600", |m| {
            m.facts.credentials.secrets[0].owned = Ok(Owned { mode: 0o100_644, ..root_only() });
        }),
    ]);
    check_fine(&[
        ("static pods", "folder", |m| mode(m, 0, 0, 0o040_775)),
        ("mode", "standalone", |m| m.standalone()),
        ("kubeconfig", "will be made with /etc/kubernetes/bootstrap", |m| {
            m.wanted.bootstrap_kubeconfig = Some("/etc/kubernetes/bootstrap-kubelet.conf".into());
            m.facts.credentials.bootstrap = true;
            m.facts.credentials.kubeconfig = Some(Err(Unread::Failed("gone".into())));
        }),
        // A bundle keeps its old members for a while.
        ("client CA", "valid until 2036-01-01", |m| {
            let old = valid("2016-01-01T00:00:00Z", "2026-01-01T00:00:00Z");
            m.facts.credentials.certificates[0].validity.as_mut().expect("certificates").insert(0, old);
        }),
    ]);
}
