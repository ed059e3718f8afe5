//! What only a preflight asks: how the runtime is set up, apart from what it runs. Not part of the [`Runtime`] port,
//! because no decision about a pod depends on it.
//!
//! [`Runtime`]: crate::port::Runtime

use std::collections::BTreeMap;
use std::path::PathBuf;

use crablet_model::cgroup::CgroupDriver;
use crablet_model::runtime::RuntimeHandler;
use crablet_protos::cri as wire;

use super::CriClient;
use super::replies::handler;
use crate::port::Result;

/// The runtime about itself, at length.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Description {
    /// `RuntimeReady`, `NetworkReady`, and whatever else this runtime reports.
    pub conditions: Vec<Condition>,
    pub handlers: Vec<RuntimeHandler>,
    /// Free text by key, usually JSON; each runtime has its own.
    pub info: BTreeMap<String, String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    pub name: String,
    pub holds: bool,
    pub reason: String,
    pub message: String,
}

impl CriClient {
    /// The verbose form of `status`.
    pub async fn describe(&self) -> Result<Description> {
        let request = wire::StatusRequest { verbose: true };
        let reply = self
            .connection
            .call(self.usual(), request, |mut to, q| async move { to.runtime.status(q).await })
            .await?;
        Ok(description(reply))
    }

    /// `None` when the runtime knows the call and does not say.
    /// [`ErrorKind::Unimplemented`](crate::ErrorKind::Unimplemented) where it is too old for it.
    pub async fn cgroup_driver(&self) -> Result<Option<CgroupDriver>> {
        let reply = self
            .connection
            .call(self.usual(), wire::RuntimeConfigRequest {}, |mut to, q| async move {
                to.runtime.runtime_config(q).await
            })
            .await?;
        Ok(reply.linux.and_then(|linux| driver(linux.cgroup_driver)))
    }

    /// Where the runtime keeps images: a folder of each file system.
    pub async fn image_filesystems(&self) -> Result<Vec<PathBuf>> {
        let reply = self
            .connection
            .call(self.usual(), wire::ImageFsInfoRequest {}, |mut to, q| async move {
                to.images.image_fs_info(q).await
            })
            .await?;
        let folders = reply.image_filesystems.into_iter().filter_map(|used| used.fs_id);
        Ok(folders.map(|id| PathBuf::from(id.mountpoint)).collect())
    }
}

fn description(reply: wire::StatusResponse) -> Description {
    let conditions = reply.status.unwrap_or_default().conditions.into_iter().map(|c| Condition {
        name: c.r#type,
        holds: c.status,
        reason: c.reason,
        message: c.message,
    });
    Description {
        conditions: conditions.collect(),
        handlers: reply.runtime_handlers.into_iter().map(handler).collect(),
        info: reply.info.into_iter().collect(),
    }
}

fn driver(number: i32) -> Option<CgroupDriver> {
    match wire::CgroupDriver::try_from(number) {
        Ok(wire::CgroupDriver::Systemd) => Some(CgroupDriver::Systemd),
        Ok(wire::CgroupDriver::Cgroupfs) => Some(CgroupDriver::Cgroupfs),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_nobody_knows_is_no_driver() {
        assert_eq!(
            [0, 1, 2, -1].map(driver),
            [Some(CgroupDriver::Systemd), Some(CgroupDriver::Cgroupfs), None, None]
        );
    }

    #[test]
    fn an_empty_answer_describes_nothing() {
        assert_eq!(description(wire::StatusResponse::default()), Description::default());
    }

    #[test]
    fn a_handler_without_features_has_none() {
        let named = wire::RuntimeHandler { name: "runc".into(), features: None };
        let reply = wire::StatusResponse { runtime_handlers: vec![named], ..Default::default() };
        let expected = RuntimeHandler { name: "runc".into(), ..RuntimeHandler::default() };
        assert_eq!(description(reply).handlers, [expected]);
    }
}
