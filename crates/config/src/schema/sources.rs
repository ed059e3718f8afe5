//! Where pods come from.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "Where pods come from", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("staticPodPath", Path)
        .flag("pod-manifest-path")
        .acts()
        .doc("A folder of pod manifests, or one manifest. Files whose names start with a dot are ignored."),
    field("fileCheckFrequency", Duration)
        .flag("file-check-frequency")
        .default("20s")
        .live()
        .doc("How often the manifests are read again even though nothing reported a change."),
    field("staticPodURL", Text("URL"))
        .flag("manifest-url")
        .acts()
        .doc("An http or https address that answers with a pod or a list of pods."),
    field("staticPodURLHeader", Headers)
        .flag("manifest-url-header")
        .acts()
        .doc("Headers to send to --manifest-url. May be repeated. The first one replaces those of the config file."),
    field("httpCheckFrequency", Duration)
        .flag("http-check-frequency")
        .default("20s")
        .live()
        .doc("How often --manifest-url is asked."),
];
