//! Which part of the node a request is about, as upstream maps it (`KubeletFineGrainedAuthz` included).

use axum::http::Method;

/// The API's word for a method.
pub fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::GET => "get",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "",
    }
}

/// The subresources of `nodes` of which one must be allowed, in the order in which they are tried.
pub fn subresources(path: &str) -> &'static [&'static str] {
    const TABLE: [(&str, &[&str]); 10] = [
        ("/pods", &["pods", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/statusz", &["statusz"]),
        ("/flagz", &["configz"]),
    ];
    let below =
        |prefix: &str| path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    TABLE.iter().find(|(prefix, _)| below(prefix)).map_or(&["proxy"], |(_, subresources)| subresources)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_map_to_subresources_as_upstream_maps_them() {
        for (path, expected) in [
            ("/pods", "pods proxy"),
            ("/pods/", "pods proxy"),
            ("/podsandmore", "proxy"),
            ("/runningpods/", "pods proxy"),
            ("/healthz/ping", "healthz proxy"),
            ("/configz", "configz proxy"),
            ("/stats/summary", "stats"),
            ("/metrics", "metrics"),
            ("/metrics/cadvisor", "metrics"),
            ("/logs/messages", "log"),
            ("/checkpoint/a/b/c", "checkpoint"),
            ("/statusz", "statusz"),
            ("/flagz", "configz"),
            ("/containerLogs/a/b/c", "proxy"),
            ("/exec/a/b/c", "proxy"),
            ("/debug/pprof/heap", "proxy"),
            ("/", "proxy"),
            ("//pods", "proxy"),
            ("/Pods", "proxy"),
        ] {
            assert_eq!(subresources(path).join(" "), expected, "{path}");
        }
        let verbs = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "BREW"]
            .map(|name| verb(&Method::from_bytes(name.as_bytes()).expect("a method")));
        assert_eq!(verbs, ["get", "create", "update", "patch", "delete", "", "", ""]);
    }
}
