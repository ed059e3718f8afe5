//! Ports, and who may ask what on them.

use super::Kind::*;
use super::*;

pub const GROUP: Group = Group { title: "What is served", settings: SETTINGS };

const SETTINGS: &[Setting] = &[
    field("enableServer", Bool)
        .pointer()
        .flag("enable-server")
        .default("true")
        .acts()
        .doc("Serve the ports below, --healthz-port apart."),
    field("address", Ip)
        .flag("address")
        .default("0.0.0.0")
        .acts()
        .doc("The address on which the ports below are served, --healthz-port apart."),
    field("port", Int32)
        .flag("port")
        .default("10250")
        .acts()
        .doc("The port of the API that asks who you are."),
    field("readOnlyPort", Int32)
        .flag("read-only-port")
        .acts()
        .doc("A port that tells anyone who asks which pods run here, without authentication. 0 means off, also without --config, where upstream would serve 10255."),
    field("healthzPort", Int32)
        .pointer()
        .flag("healthz-port")
        .default("10248")
        .acts()
        .doc("The port of /healthz. 0 means off."),
    field("healthzBindAddress", Ip)
        .flag("healthz-bind-address")
        .default("127.0.0.1")
        .acts()
        .doc("The address of /healthz."),
    field("authentication.anonymous.enabled", Bool)
        .pointer()
        .flag("anonymous-auth")
        .default("false")
        .acts()
        .doc("Requests without credentials are anonymous instead of refused. Off also without --config, where upstream has it on."),
    field("authentication.webhook.enabled", Bool)
        .pointer()
        .flag("authentication-token-webhook")
        .default("true")
        .acts()
        .doc("Ask the API server who a bearer token is. On also without --config, where upstream has it off."),
    field("authentication.webhook.cacheTTL", Duration)
        .flag("authentication-token-webhook-cache-ttl")
        .default("2m0s")
        .acts()
        .doc("How long the API server's word about a token is remembered."),
    field("authentication.x509.clientCAFile", Path)
        .flag("client-ca-file")
        .acts()
        .doc("Who signs the certificates of clients."),
    field("authorization.mode", Text("MODE"))
        .flag("authorization-mode")
        .default("Webhook")
        .acts()
        .doc("AlwaysAllow or Webhook. Webhook also without --config, where upstream allows everything."),
    field("authorization.webhook.cacheAuthorizedTTL", Duration)
        .flag("authorization-webhook-cache-authorized-ttl")
        .default("5m0s")
        .acts()
        .doc("How long the API server's \"yes\" is remembered."),
    field("authorization.webhook.cacheUnauthorizedTTL", Duration)
        .flag("authorization-webhook-cache-unauthorized-ttl")
        .default("30s")
        .acts()
        .doc("How long the API server's \"no\" is remembered."),
    field("tlsCertFile", Path)
        .flag("tls-cert-file")
        .acts()
        .doc("The certificate to serve with. Without it, one is made in --cert-dir."),
    field("tlsPrivateKeyFile", Path)
        .flag("tls-private-key-file")
        .acts()
        .doc("The key of --tls-cert-file."),
    field("tlsCipherSuites", TextList("NAME"))
        .flag("tls-cipher-suites")
        .acts()
        .doc("Ciphers of TLS 1.2 to serve with."),
    field("tlsMinVersion", Text("VERSION"))
        .flag("tls-min-version")
        .acts()
        .doc("VersionTLS10, VersionTLS11, VersionTLS12 (the default) or VersionTLS13."),
    field("tlsCurvePreferences", Int32List)
        .doc("Curves for the key exchange, by their numbers in Go."),
    field("serverTLSBootstrap", Bool)
        .flag("rotate-server-certificates")
        .acts()
        .doc("Ask the API server for the certificate to serve with, and for new ones in time."),
    field("enableDebuggingHandlers", Bool)
        .pointer()
        .flag("enable-debugging-handlers")
        .default("true")
        .acts()
        .doc("Serve logs, exec, attach and port-forward."),
    field("enableContentionProfiling", Bool)
        .flag("contention-profiling")
        .inert()
        .doc("Profile lock contention. There is nothing of the kind to profile here."),
    field("enableProfilingHandler", Bool)
        .pointer()
        .default("true")
        .acts()
        .doc("Serve /debug/pprof."),
    field("enableDebugFlagsHandler", Bool)
        .pointer()
        .default("true")
        .acts()
        .doc("Serve /debug/flags/v, which changes the verbosity."),
    field("enableSystemLogHandler", Bool)
        .pointer()
        .default("true")
        .acts()
        .doc("Serve the machine's logs at /logs."),
    field("enableSystemLogQuery", Bool)
        .pointer()
        .default("false")
        .acts()
        .doc("Serve queries of the machine's logs at /logs. Needs enableSystemLogHandler."),
    field("showHiddenMetricsForVersion", Text("VERSION"))
        .doc("Serve metrics that were hidden in this version, such as `1.35`."),
    field("streamingConnectionIdleTimeout", Duration)
        .flag("streaming-connection-idle-timeout")
        .default("4h0m0s")
        .inert()
        .doc("How long exec and the like may be idle. Without effect also upstream."),
];
