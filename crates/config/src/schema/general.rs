//! Where the configuration comes from, and what the node is called.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "General", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    flag("config", Path)
        .acts()
        .doc("A KubeletConfiguration (v1beta1) in YAML or JSON. Flags win over what it says."),
    flag("config-dir", Path)
        .acts()
        .doc("A folder of drop-ins: every `*.conf` in it and below it, in the order of their names, is merged over --config."),
    flag("root-dir", Path)
        .default("/var/lib/kubelet")
        .acts()
        .doc("Where the agent keeps what must survive its restart, and where pods keep their volumes."),
    flag("cert-dir", Path)
        .default("/var/lib/kubelet/pki")
        .acts()
        .doc("Where certificates are kept that were not named by --tls-cert-file."),
    field("featureGates", BoolMap)
        .flag("feature-gates")
        .acts()
        .doc("Features to switch on or off. What the flag says is added to what the file says, and wins."),
    flag("hostname-override", Text("NAME"))
        .acts()
        .doc("The node's name. Without it, the machine's hostname in lower case."),
    flag("node-ip", Text("IP,..."))
        .acts()
        .doc("The node's address, or one of each family. `0.0.0.0` and `::` name the preferred family."),
    flag("node-labels", TextMap(Pairs::Labels))
        .acts()
        .doc("Labels that the node gives itself when it registers."),
];
