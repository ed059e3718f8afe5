//! Gathers what a status is made of.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use crablet_host::Clock;
use crablet_model::api;
use crablet_planner::node::addresses::needs_lookup;
use crablet_planner::node::{Machine, Network, NodeFacts, NodeSettings, RuntimeState};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::host::NodeHost;
use crate::said::Said;

/// How long the machine may take to answer. DNS is the slow one.
const HOST_DEADLINE: Duration = Duration::from_secs(5);
/// The same for the first answer, without which there is nothing true to say. A machine that is very busy is not without
/// addresses.
const FIRST_DEADLINE: Duration = Duration::from_secs(60);

/// The facts, as they were when they were looked at last.
pub(crate) struct Gathered {
    pub(crate) settings: Arc<NodeSettings>,
    host: Arc<dyn NodeHost>,
    clock: Arc<dyn Clock>,
    machine: Option<Machine>,
    network: Network,
    /// Once the machine has been asked for everything.
    asked: bool,
    root_capacity: Option<u64>,
    said: [Said; 4],
}

/// What changes by itself, at the time of looking.
pub(crate) struct Moment {
    runtime: RuntimeState,
    storage_error: Option<String>,
    images: Arc<Vec<api::ContainerImage>>,
    volumes_in_use: Option<Arc<Vec<String>>>,
    now: Timestamp,
}

/// Where news comes from.
pub(crate) struct News {
    pub(crate) health: watch::Receiver<RuntimeState>,
    pub(crate) images: watch::Receiver<Arc<Vec<api::ContainerImage>>>,
    pub(crate) volumes_in_use: watch::Receiver<Option<Arc<Vec<String>>>>,
    pub(crate) storage: watch::Receiver<Option<String>>,
}

impl News {
    /// Waits for a change of any.
    pub(crate) async fn changed(&mut self) {
        tokio::select! {
            biased;
            () = changed(&mut self.health) => {}
            () = changed(&mut self.storage) => {}
            () = changed(&mut self.volumes_in_use) => {}
            () = changed(&mut self.images) => {}
        }
    }
}

/// Never again once nobody can tell anything.
pub(crate) async fn changed<T>(news: &mut watch::Receiver<T>) {
    if news.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
}

impl Gathered {
    pub(crate) fn new(settings: Arc<NodeSettings>, host: Arc<dyn NodeHost>, clock: Arc<dyn Clock>) -> Self {
        Self {
            settings,
            host,
            clock,
            machine: None,
            // No default route, until the machine has said which it has.
            network: Network { default_routes: Some(Vec::new()), ..Network::default() },
            asked: false,
            root_capacity: None,
            said: Default::default(),
        }
    }

    /// Looks at the machine. What cannot be seen now stays as it was: that there is no answer says nothing.
    pub(crate) async fn refresh(&mut self) {
        let [machine, interfaces, routes, disk] = &mut self.said;
        let within = if std::mem::replace(&mut self.asked, true) { HOST_DEADLINE } else { FIRST_DEADLINE };
        if self.machine.is_none() {
            self.machine = answer(machine, "Error getting machine info", within, self.host.machine()).await;
        }
        let seen =
            answer(interfaces, "Error listing network interfaces", within, self.host.interfaces()).await;
        if let Some(seen) = seen {
            self.network.interfaces = seen;
        }
        let seen = answer(routes, "Error reading default routes", within, self.host.default_routes()).await;
        if let Some(seen) = seen {
            self.network.default_routes = seen;
        }
        if needs_lookup(&self.settings)
            && let Ok(answer) = timeout(HOST_DEADLINE, self.host.lookup(&self.settings.node_name)).await
        {
            // A name that DNS does not know is usual, and nothing to speak of.
            self.network.looked_up = answer.unwrap_or_default();
        }
        let question = self.host.root_capacity();
        let size =
            answer(disk, "Error getting the size of the root folder's filesystem", within, question).await;
        self.root_capacity = size.or(self.root_capacity);
    }

    pub(crate) fn moment(&self, news: &mut News) -> Moment {
        Moment {
            runtime: news.health.borrow_and_update().clone(),
            storage_error: news.storage.borrow_and_update().clone(),
            images: news.images.borrow_and_update().clone(),
            volumes_in_use: news.volumes_in_use.borrow_and_update().clone(),
            now: self.clock.now(),
        }
    }

    pub(crate) fn at<'a>(&'a self, moment: &'a Moment) -> NodeFacts<'a> {
        NodeFacts {
            settings: &self.settings,
            machine: self.machine.as_ref(),
            network: &self.network,
            root_capacity: self.root_capacity,
            runtime: &moment.runtime,
            storage_error: moment.storage_error.as_deref(),
            images: &moment.images,
            volumes_in_use: moment.volumes_in_use.as_deref().map(Vec::as_slice),
            now: moment.now,
        }
    }
}

async fn answer<T>(
    said: &mut Said,
    failure: &'static str,
    within: Duration,
    question: impl Future<Output = io::Result<T>>,
) -> Option<T> {
    let result = timeout(within, question).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()));
    match result {
        Ok(answer) => {
            said.is_over();
            Some(answer)
        }
        Err(error) => {
            if said.is_news(&error.to_string()) {
                tracing::error!(err = %error, "{failure}");
            }
            None
        }
    }
}
