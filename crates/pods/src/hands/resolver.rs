//! The node's resolver settings: read anew for each sandbox, and looked at once when the agent starts.

use std::path::Path;

use crablet_host::Files;
use crablet_model::events::NodeEvent;
use crablet_model::names::event_reason;
use crablet_planner::pod::NodeFacts;
use crablet_planner::pod::config::{beyond_limits, parse_resolv_conf};

use super::Hands;
use super::sandbox::told;

const MOST_OF_RESOLV_CONF: usize = 1 << 20;

impl Hands {
    /// The node with its resolver settings of this moment.
    pub(super) async fn node_now(&self, node: &NodeFacts) -> Result<NodeFacts, String> {
        let resolv_conf = match &self.resolv_conf {
            Some(path) => {
                let text = read(&*self.files, path).await?;
                let conf = parse_resolv_conf(&text).map_err(|why: &str| {
                    format!("Encountered error while parsing resolv conf file. Error: {why}")
                })?;
                Some(conf)
            }
            None => None,
        };
        Ok(NodeFacts { resolv_conf, ..node.clone() })
    }
}

/// What the Node should say of a resolver file that cannot be used as it is.
pub async fn check_resolv_conf(files: &dyn Files, path: &Path, cluster_domain: &str) -> Option<NodeEvent> {
    let problem = match read(files, path).await {
        Ok(text) => match parse_resolv_conf(&text) {
            Ok(conf) => beyond_limits(&path.to_string_lossy(), &conf, cluster_domain),
            Err(why) => Some(why.to_owned()),
        },
        Err(why) => Some(why),
    };
    problem.map(|problem| NodeEvent::warning(event_reason::CHECK_LIMITS_FOR_RESOLV_CONF, problem))
}

async fn read(files: &dyn Files, path: &Path) -> Result<String, String> {
    let text = files.read(path, MOST_OF_RESOLV_CONF).await;
    let text = text.map_err(|error| format!("open {}: {}", path.display(), told(&error)))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

#[cfg(test)]
mod tests {
    use crablet_host::fake::FakeFiles;
    use serde_json::json;

    use super::*;
    use crate::testing::House;

    #[tokio::test(start_paused = true)]
    async fn what_the_node_lacks_is_told_of_the_node_and_of_the_pod() {
        let house = House::new().await;
        let pod = json!({
            "metadata": {"name": "web", "namespace": "default", "uid": "uid-1"},
            "spec": {
                "dnsPolicy": "ClusterFirst",
                "containers": [{"name": "main", "image": "app:1", "imagePullPolicy": "IfNotPresent"}],
            },
        });
        house.create(&pod).await;
        house.until("it runs", |house| house.running() == ["main"]).await;
        let told = house.told();
        let count = |begin: &str| told.iter().filter(|event| event.starts_with(begin)).count();
        assert_eq!(count("Node MissingClusterDNS kubelet does not have"), 1, "{told:?}");
        assert_eq!(count("MissingClusterDNS "), 1, "{told:?}");
    }

    #[tokio::test]
    async fn a_resolver_file_that_cannot_be_used_is_told() {
        let disk = FakeFiles::new(fastrand::Rng::with_seed(7));
        let path = Path::new("/etc/resolv.conf");
        let said = async || {
            let event = check_resolv_conf(&disk, path, "cluster.local").await?;
            assert_eq!(event.reason, "CheckLimitsForResolvConf");
            Some(event.message)
        };
        let missing = said().await.unwrap();
        assert!(missing.starts_with("open /etc/resolv.conf: "), "{missing}");
        disk.create_folder(Path::new("/etc"), 0o755).await.unwrap();
        let many: Vec<_> = (0..30).map(|i| format!("d{i}.test")).collect();
        for (text, expected) in [
            ("nameserver 1.1.1.1\nsearch a.test\n".to_owned(), None),
            ("nameserver\n".to_owned(), Some("nameserver list is empty ")),
            (
                format!("search {}\n", many.join(" ")),
                Some(
                    "Resolv.conf file '/etc/resolv.conf' contains search line consisting of more than 29 domains!",
                ),
            ),
        ] {
            disk.write_atomic(path, text.as_bytes(), 0o644).await.unwrap();
            assert_eq!(said().await.as_deref(), expected, "{text}");
        }
    }
}
