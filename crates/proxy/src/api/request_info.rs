//! What a request is about, in Kubernetes' words; derived as the API server derives it.

use http::Method;

/// For a path outside of the API (`/healthz`), only `verb` is filled in, with the method.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestInfo {
    pub verb: String,
    pub namespace: String,
    pub resource: String,
    pub subresource: String,
    pub name: String,
}

impl RequestInfo {
    pub fn of(method: &Method, path: &str, query: &str) -> RequestInfo {
        let mut info = RequestInfo { verb: method.as_str().to_ascii_lowercase(), ..RequestInfo::default() };
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let parts = match parts[..] {
            ["api", _version, ref rest @ ..] if !rest.is_empty() => rest,
            ["apis", _group, _version, ref rest @ ..] if !rest.is_empty() => rest,
            _ => return info,
        };
        info.verb = match method.as_str() {
            "POST" => "create",
            "GET" | "HEAD" => "get",
            "PUT" => "update",
            other => return RequestInfo { verb: other.to_ascii_lowercase(), ..info }.at(parts, query),
        }
        .to_owned();
        info.at(parts, query)
    }

    fn at(mut self, mut parts: &[&str], query: &str) -> RequestInfo {
        // An old way to watch: `/api/v1/watch/pods`.
        if let ["watch", rest @ ..] = parts {
            self.verb = "watch".to_owned();
            parts = rest;
        }
        if let ["namespaces", namespace, rest @ ..] = parts {
            self.namespace = (*namespace).to_owned();
            // These two are about the namespace itself.
            if !rest.is_empty() && !matches!(rest[0], "status" | "finalize") {
                parts = rest;
            }
        }
        let part = |index: usize| parts.get(index).map(|part| (*part).to_owned()).unwrap_or_default();
        (self.resource, self.name, self.subresource) = (part(0), part(1), part(2));
        if self.name.is_empty() {
            let watches = query.split('&').any(|pair| {
                matches!(pair.split_once('=').unwrap_or((pair, "")), ("watch", "" | "1" | "true" | "True"))
            });
            match self.verb.as_str() {
                "get" if watches => self.verb = "watch".to_owned(),
                "get" => self.verb = "list".to_owned(),
                "delete" => self.verb = "deletecollection".to_owned(),
                _ => {}
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_mean_what_they_mean_to_kubernetes() {
        for (method, uri, expected) in [
            ("GET", "/healthz?verbose", ["get", "", "", "", ""]),
            ("GET", "/api", ["get", "", "", "", ""]),
            ("GET", "/api/v1", ["get", "", "", "", ""]),
            ("GET", "/apis/apps/v1", ["get", "", "", "", ""]),
            ("GET", "/api/v1/pods", ["list", "", "pods", "", ""]),
            ("GET", "/api/v1/pods?limit=500&watch=true", ["watch", "", "pods", "", ""]),
            ("GET", "/api/v1/pods?watch=false", ["list", "", "pods", "", ""]),
            ("GET", "/api/v1/watch/nodes/a", ["watch", "", "nodes", "", "a"]),
            ("GET", "/api/v1/nodes/a", ["get", "", "nodes", "", "a"]),
            ("HEAD", "/api/v1/nodes/a", ["get", "", "nodes", "", "a"]),
            ("PATCH", "/api/v1/nodes/a/status", ["patch", "", "nodes", "status", "a"]),
            ("GET", "/api/v1/namespaces/ns", ["get", "ns", "namespaces", "", "ns"]),
            ("PUT", "/api/v1/namespaces/ns/finalize", ["update", "ns", "namespaces", "finalize", "ns"]),
            ("POST", "/api/v1/namespaces/ns/pods", ["create", "ns", "pods", "", ""]),
            ("POST", "/api/v1/namespaces/ns/pods/p/eviction", ["create", "ns", "pods", "eviction", "p"]),
            ("DELETE", "/api/v1/namespaces/ns/pods/p", ["delete", "ns", "pods", "", "p"]),
            ("DELETE", "/api/v1/namespaces/ns/pods", ["deletecollection", "ns", "pods", "", ""]),
            (
                "PUT",
                "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/a",
                ["update", "kube-node-lease", "leases", "", "a"],
            ),
            ("GET", "/api/v1/nodes/a/proxy/metrics/cadvisor", ["get", "", "nodes", "proxy", "a"]),
        ] {
            let (path, query) = uri.split_once('?').unwrap_or((uri, ""));
            let info = RequestInfo::of(&method.parse().unwrap(), path, query);
            let found = [info.verb, info.namespace, info.resource, info.subresource, info.name];
            assert_eq!(found, expected, "{method} {uri}");
        }
    }
}
