//! The API server, and what the node tells it.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "The cluster", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    flag("kubeconfig", Path)
        .acts()
        .doc("How to reach the API server. Without it the agent stands alone."),
    flag("bootstrap-kubeconfig", Path)
        .acts()
        .doc("How to reach the API server to ask for the certificate of --kubeconfig."),
    field("rotateCertificates", Bool)
        .flag("rotate-certificates")
        .acts()
        .doc("Ask the API server for a new client certificate in time."),
    flag("cloud-provider", Text("NAME"))
        .acts()
        .doc("`external`: something else initialises the node."),
    field("providerID", Text("ID"))
        .flag("provider-id")
        .welcome()
        .acts()
        .doc("How a cloud names this machine."),
    field("registerNode", Bool)
        .pointer()
        .flag("register-node")
        .default("true")
        .acts()
        .doc("Register the node with the API server."),
    field("registerWithTaints", Objects(Items::Taints))
        .flag("register-with-taints")
        .acts()
        .doc("Taints that the node registers with, as `key=value:Effect,...`."),
    field("nodeStatusUpdateFrequency", Duration)
        .flag("node-status-update-frequency")
        .default("10s")
        .acts()
        .doc("How often the node's status is computed."),
    field("nodeStatusReportFrequency", Duration)
        .acts()
        .doc("How often the node's status is sent although it did not change. 5m0s, or nodeStatusUpdateFrequency where that was said."),
    field("nodeStatusMaxImages", Int32)
        .pointer()
        .flag("node-status-max-images")
        .default("50")
        .acts()
        .doc("How many images the node's status names. -1 means all."),
    field("nodeLeaseDurationSeconds", Int32)
        .default("40")
        .acts()
        .doc("For how many seconds a heartbeat holds."),
    field("kubeAPIQPS", Int32)
        .pointer()
        .flag("kube-api-qps")
        .default("50")
        .acts()
        .doc("How many requests per second the API server gets."),
    field("kubeAPIBurst", Int32)
        .flag("kube-api-burst")
        .default("100")
        .acts()
        .doc("How many requests the API server gets at once before --kube-api-qps holds them back."),
    field("contentType", Text("TYPE"))
        .flag("kube-api-content-type")
        .default("application/vnd.kubernetes.protobuf")
        .doc("How requests to the API server are written. JSON is spoken so far, whatever this says."),
    field("eventRecordQPS", Int32)
        .pointer()
        .flag("event-qps")
        .default("50")
        .acts()
        .doc("How many events per second the API server gets. 0 means 5."),
    field("eventBurst", Int32)
        .flag("event-burst")
        .default("100")
        .acts()
        .doc("How many events the API server gets at once before --event-qps holds them back."),
];
