//! UIDs that upstream's kubelet v1.36.4 gave to pods, each in the comment above its manifest.

use super::*;
use crate::manifest::{decode, defaults, parse};

const KNOWN: &str = include_str!("known.yaml");
const NODE: &str = "Node1";
const FILE: Origin<'static> = Origin::File { path: "/etc/kubernetes/manifests/web.yaml" };
const URL: Origin<'static> = Origin::Url { url: "https://files.example.com/pods?a=b" };

/// Also of pods that nobody would let run.
fn pod_of(manifest: &str) -> Pod {
    let parsed = parse::parse(manifest.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    let (mut pod, _) = decode::pod(parsed.value).unwrap_or_else(|error| panic!("{error}\n{manifest}"));
    defaults::apply(&mut pod);
    pod
}

#[test]
fn pods_have_the_uids_that_upstream_gives_them() {
    let mut checked = 0;
    for document in KNOWN.split("\n---\n") {
        let comment = |key: &str| document.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
        let pod = pod_of(document);
        for (known, origin) in [(comment("# file:"), FILE), (comment("# url:"), URL)] {
            assert_eq!(Some(of(&pod, &origin, NODE).as_str()), known, "{}", text(&pod));
        }
        checked += 1;
    }
    assert!(checked >= 12, "{checked}");
}

fn text(pod: &Pod) -> String {
    let mut text = String::new();
    print::pod(&internal::shape(pod), &mut text);
    text
}

#[test]
fn what_is_hashed_is_what_upstreams_printer_writes() {
    let text = text(&pod_of(KNOWN));
    let start = "(*core.Pod){TypeMeta:(v1.TypeMeta){Kind:(string) APIVersion:(string)} \
                 ObjectMeta:(v1.ObjectMeta){Name:(string)web GenerateName:(string) Namespace:(string) ";
    assert!(text.starts_with(start), "{text}");
    for part in [
        " Labels:(map[string]string)<nil> ",
        " TerminationGracePeriodSeconds:(*int64)30 ActiveDeadlineSeconds:(*int64)<nil> ",
        " SecurityContext:(*core.PodSecurityContext){HostNetwork:(bool)false ",
        " Containers:([]core.Container)[{Name:(string)app Image:(string)nginx:1 Command:([]string)<nil> ",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}
