use std::time::Duration;

use crablet_apiserver::Verb;
use crablet_apiserver::fake::{Effect, Where};
use crablet_certificates::bootstrap::{needs_bootstrap, run};
use crablet_certificates::{BootstrapError, RequestError};
use jiff::SignedDuration;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;

use crate::world::{KUBECONFIG, NODE, PKI, Verdict, World, asked, shown};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const SIGN: Verdict = Verdict::Sign { valid_for: DAY };
const KEY_FILE: &str = "/var/lib/kubelet/pki/kubelet-client.key.tmp";

/// As upstream's kubelet writes it, with the name that upstream gives to the request for node `worker-1` with it.
const UPSTREAM_KEY: &str = "-----BEGIN EC PRIVATE KEY-----\n\
    MHcCAQEEINcicbmxviPXc2Yp3WCAxjq9LY/BMc8Yz4gruv6vEHNpoAoGCCqGSM49\n\
    AwEHoUQDQgAEhQr4FR3gH7fp3s1ytrMCfNK4vtBgZREPNU7rq8U4tmIZMTPlS1Ag\n\
    LrXYwibvAzJ1D/rLDa/dU0/QOeQ1c10GZQ==\n\
    -----END EC PRIVATE KEY-----\n";
const UPSTREAM_NAME: &str = "node-csr-RDksDsiVFx8V6P-OE_nLXUFtgnVo1E1pZhumdbCqxbI";

async fn wanted(world: &World) -> bool {
    needs_bootstrap(&world.files, &world.clock, KUBECONFIG.as_ref()).await.expect("a readable kubeconfig")
}

#[tokio::test(start_paused = true)]
async fn a_token_becomes_a_certificate_and_a_kubeconfig() {
    let world = World::new(SIGN);
    // A server that stumbles at first.
    world.api.fault_times(Where::call(Verb::Post, "certificatesigningrequests"), Effect::Fail(503), 2);
    assert!(wanted(&world).await);
    run(world.bootstrap()).await.expect("a bootstrap");

    let requests = world.requests();
    let [csr] = requests.as_slice() else { panic!("{requests:?}") };
    let spec = csr["spec"].as_object().expect("a spec");
    assert_eq!(spec.keys().collect::<Vec<_>>(), ["request", "signerName", "usages"]);
    assert_eq!(spec["signerName"], "kubernetes.io/kube-apiserver-client-kubelet");
    assert_eq!(spec["usages"], json!(["digital signature", "client auth"]));
    assert!(csr["metadata"]["name"].as_str().unwrap().starts_with("node-csr-"));
    let asked = asked(csr);
    assert_eq!(asked.organizations, ["system:nodes"]);
    assert_eq!(asked.common_names, [format!("system:node:{NODE}")]);
    assert!(asked.dns.is_empty() && asked.addresses.is_empty());

    let current = format!("{PKI}/kubelet-client-current.pem");
    let target = world.current_target();
    assert!(target.starts_with(&format!("{PKI}/kubelet-client-2026-05-04-03-02-")), "{target}");
    assert_eq!(world.files.paths_below(PKI), [target.clone(), format!("{current} -> {target}")]);
    assert_eq!(world.files.mode(&current), Some(0o600));
    let pem = world.files.content(&current).expect("a pair");
    let certificate = CertificateDer::from_pem_slice(&pem).expect("a certificate");
    assert_eq!(shown(&certificate).0, format!("system:node:{NODE}"));
    PrivateKeyDer::from_pem_slice(&pem).expect("a key");

    assert_eq!(world.files.mode(KUBECONFIG), Some(0o600));
    let kubeconfig = String::from_utf8(world.files.content(KUBECONFIG).expect("a kubeconfig")).expect("text");
    assert_eq!(
        kubeconfig,
        "apiVersion: v1\n\
         clusters:\n\
         - cluster:\n    certificate-authority: /etc/kubernetes/pki/ca.crt\n    server: https://10.0.0.1:6443\n  \
           name: default-cluster\n\
         contexts:\n\
         - context:\n    cluster: default-cluster\n    namespace: default\n    user: default-auth\n  \
           name: default-context\n\
         current-context: default-context\n\
         kind: Config\n\
         users:\n\
         - name: default-auth\n  user:\n    \
             client-certificate: /var/lib/kubelet/pki/kubelet-client-current.pem\n    \
             client-key: /var/lib/kubelet/pki/kubelet-client-current.pem\n"
    );

    assert!(!wanted(&world).await);
    world.clock.jump(SignedDuration::try_from(DAY * 2).unwrap());
    assert!(wanted(&world).await, "the certificate is over");
}

#[tokio::test(start_paused = true)]
async fn what_the_administrator_refuses_is_told_in_upstreams_words() {
    for (verdict, words) in [
        (Verdict::Deny, "certificate signing request is denied, reason: Because, message: of the test"),
        (Verdict::Fail, "certificate signing request failed, reason: Because, message: of the test"),
    ] {
        let world = World::new(verdict);
        let error = run(world.bootstrap()).await.expect_err("no certificate").to_string();
        assert!(error.ends_with(words), "{error}");
        assert!(wanted(&world).await);
        assert_eq!(world.files.paths_below(PKI), [KEY_FILE]);
    }
    let world = World::new(SIGN);
    world.api.fault(Where::call(Verb::Post, "certificatesigningrequests"), Effect::Fail(401));
    let error = run(world.bootstrap()).await.expect_err("a token that is over");
    assert!(matches!(error, BootstrapError::Request(RequestError::Create(_))), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_new_start_goes_on_with_the_request_of_the_old_one() {
    let world = World::new(Verdict::Ignore);
    tokio::select! {
        ended = run(world.bootstrap()) => panic!("{ended:?}"),
        () = world.until_requests(1) => {}
    }
    let key = world.files.content(KEY_FILE).expect("the key is kept");
    assert_eq!(world.files.mode(KEY_FILE), Some(0o600));

    // Somebody removes what nobody looked at; the request is made again under its name.
    let name = world.requests()[0]["metadata"]["name"].as_str().unwrap().to_owned();
    tokio::select! {
        ended = run(world.bootstrap()) => panic!("{ended:?}"),
        () = async {
            tokio::time::sleep(Duration::from_secs(5)).await;
            world.delete_request(&name);
            world.until_requests(1).await;
        } => {}
    }
    assert_eq!(world.files.content(KEY_FILE), Some(key));

    world.judge(SIGN);
    let mut csr = world.requests().remove(0);
    assert_eq!(csr["metadata"]["name"], name.as_str());
    csr["metadata"]["labels"] = json!({ "looked": "at" });
    world.api.put("certificatesigningrequests", csr);
    run(world.bootstrap()).await.expect("a bootstrap");
    assert_eq!(world.requests().len(), 1);
    assert!(world.files.content(KEY_FILE).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_that_upstream_began_is_ended() {
    let world = World::new(SIGN);
    world.files.put(KEY_FILE, UPSTREAM_KEY);
    run(world.bootstrap()).await.expect("a bootstrap");
    assert_eq!(world.requests()[0]["metadata"]["name"], UPSTREAM_NAME);
}

#[tokio::test(start_paused = true)]
async fn a_kubeconfig_that_does_not_do_is_not_kept() {
    let world = World::new(SIGN);
    run(world.bootstrap()).await.expect("a bootstrap");
    let good = String::from_utf8(world.files.content(KUBECONFIG).unwrap()).unwrap();
    for (bad, why) in [
        (good.replace("kind: Config", "kind: ["), "no YAML"),
        (good.replace("current-context: default-context", "current-context: other"), "no such context"),
        (good.replace("client-certificate:", "token:"), "no certificate"),
        (good.replace("kubelet-client-current", "missing"), "no such file"),
    ] {
        world.files.put(KUBECONFIG, bad);
        assert!(wanted(&world).await, "{why}");
    }
    world.files.put(KUBECONFIG, good.replace("/var/lib/kubelet/pki/", "../../var/lib/kubelet/pki/"));
    assert!(!wanted(&world).await, "paths are looked for beside the kubeconfig");
}
