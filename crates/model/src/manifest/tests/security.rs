//! Profiles, kernel settings, resources of pods as a whole, devices, files of variables.

use super::*;

#[test]
fn what_the_api_server_would_refuse_in_the_pod() {
    for (lines, expected) in [
        (
            "securityContext: {sysctls: [{name: A, value: b}]}",
            "securityContext.sysctls[0].name: \"A\" must be at most 253 lower-case letters",
        ),
        (
            "securityContext: {sysctls: [{name: a.b, value: c}, {name: a.b, value: d}]}",
            "securityContext.sysctls[1].name: \"a.b\" is set above; names must be unique",
        ),
        ("securityContext: {sysctls: [{name: \"\", value: b}]}", "securityContext.sysctls[0].name: required"),
        (
            "securityContext: {appArmorProfile: {type: Localhost}}",
            "securityContext.appArmorProfile.localhostProfile: must be set when AppArmor type is Localhost",
        ),
        (
            "securityContext: {appArmorProfile: {type: Localhost, localhostProfile: \" a\"}}",
            "securityContext.appArmorProfile.localhostProfile: must not be padded with whitespace",
        ),
        (
            "securityContext: {appArmorProfile: {type: Unconfined, localhostProfile: a}}",
            "securityContext.appArmorProfile.localhostProfile: can only be set when AppArmor type is Localhost",
        ),
        (
            "securityContext: {appArmorProfile: {type: Odd}}",
            "securityContext.appArmorProfile.type: \"Odd\" is not one of Localhost, RuntimeDefault, Unconfined",
        ),
        (
            "hostnameOverride: a\nsetHostnameAsFQDN: true",
            "hostnameOverride: may not be specified when setHostnameAsFQDN is true",
        ),
        (
            "hostnameOverride: a\nhostNetwork: true",
            "hostnameOverride: may not be specified when hostNetwork is true",
        ),
        ("hostUsers: false\nhostPID: true", "hostPID: forbidden when `hostUsers` is false"),
        ("hostUsers: false\nhostNetwork: true", "hostNetwork: forbidden when `hostUsers` is false"),
        (
            "resources: {limits: {example.com/gpu: 1}}",
            "resources.limits[example.com/gpu]: is not a resource that a pod has as a whole",
        ),
        (
            "resources: {requests: {cpu: 2}, limits: {cpu: 1}}",
            "resources.requests[cpu]: 2 is above the limit of 1",
        ),
        (
            "volumes: [{name: v, nfs: {server: s, path: p}}]",
            "volumes[0].nfs.path: \"p\" must be an absolute path",
        ),
        (
            "volumes: [{name: v, iscsi: {targetPortal: p, iqn: x, lun: 256}}]",
            "volumes[0].iscsi.iqn: must be valid format starting with iqn, eui, or naa; \
             spec.volumes[0].iscsi.lun: 256 is not between 0 and 255",
        ),
        (
            "volumes: [{name: v, fc: {lun: 1}}]",
            "volumes[0].fc.targetWWNs: must specify either targetWWNs or wwids, but not both",
        ),
        ("volumes: [{name: v, image: {}}]", "volumes[0].image.reference: required"),
    ] {
        let message = refusal(&with_spec(lines));
        assert!(message.starts_with(&format!("spec.{expected}")), "{lines}\n{message}");
    }
}

#[test]
fn what_the_api_server_would_refuse_in_a_container() {
    for (lines, expected) in [
        (
            "securityContext: {procMount: Unmasked}",
            "securityContext.procMount: `hostUsers` must be false to use `Unmasked`",
        ),
        (
            "securityContext: {seccompProfile: {type: Localhost}}",
            "securityContext.seccompProfile.localhostProfile: required with type `Localhost`",
        ),
        ("resources: {limits: {hugepages-2Mi: 4Mi}}", "resources: HugePages require cpu or memory"),
        (
            "resources: {limits: {hugepages-2Mi: 3Mi, cpu: 1}}",
            "resources.limits[hugepages-2Mi]: \"3Mi\" is not positive integer multiple of hugepages-2Mi",
        ),
        (
            "resources: {limits: {hugepages-2Mi: 4Mi, cpu: 1}, requests: {hugepages-2Mi: 2Mi}}",
            "resources.requests[hugepages-2Mi]: 2Mi must be equal to the limit of 4Mi",
        ),
        (
            "volumeDevices: [{name: v, devicePath: /v}]",
            "volumeDevices[0].name: \"v\" is no volume of this pod; add it to `spec.volumes`",
        ),
        (
            "env: [{name: A, valueFrom: {fileKeyRef: {key: \"a=\", volumeName: V, path: ../x}}}]",
            "env[0].valueFrom.fileKeyRef.key: \"a=\" must be printable ASCII",
        ),
        ("env: [{name: A, valueFrom: {fileKeyRef: {}}}]", "env[0].valueFrom.fileKeyRef.key: required"),
    ] {
        let message = refusal(&with_container(lines));
        assert!(message.starts_with(&format!("spec.containers[0].{expected}")), "{lines}\n{message}");
    }
}

#[test]
fn a_pods_own_resources_are_completed_from_its_containers() {
    let text = format!(
        "{}  resources: {{limits: {{memory: 200Mi, cpu: 1}}}}\n",
        with_container("resources: {requests: {cpu: 100m}}")
    );
    let decoded = accepted(&text);
    let resources = decoded.pod.spec.as_ref().and_then(|spec| spec.resources.as_ref()).expect("resources");
    let requests = serde_json::to_string(&resources.requests).expect("json");
    assert_eq!(requests, r#"{"cpu":"100m","memory":"200Mi"}"#);
    let too_small = text.replace("limits: {memory: 200Mi, cpu: 1}", "requests: {cpu: 50m}");
    assert_eq!(
        refusal(&too_small),
        "spec.resources.requests[cpu]: 50m is below the 100m that containers request together"
    );
    let too_large = text.replace("requests: {cpu: 100m}", "limits: {cpu: 2}");
    let message = refusal(&too_large);
    assert!(
        message.contains("spec.containers[0].resources.limits[cpu]: 2 is above the pod's limit of 1"),
        "{message}"
    );
}

#[test]
fn a_pod_with_users_of_its_own_may_see_all_of_proc() {
    let text = format!("{}  hostUsers: false\n", with_container("securityContext: {procMount: Unmasked}"));
    accepted(&text);
}
