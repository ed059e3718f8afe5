//! systemd is told that the agent is ready, well, or on its way out.

use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use crablet_host::supervisor::Supervisor;
use tracing::{debug, error, info, warn};

/// Upstream refuses to be watched this closely.
const TOO_CLOSE: Duration = Duration::from_secs(1);

pub struct Watchdog {
    supervisor: Supervisor,
    /// Half of what systemd waits for. `None`: it does not watch.
    every: Option<Duration>,
}

impl Watchdog {
    /// What systemd has put into the environment.
    pub fn from_environment() -> anyhow::Result<Self> {
        let variable = |name| std::env::var(name).ok();
        let timeout = timeout(variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"), std::process::id());
        let timeout = timeout.context("create health checker")?;
        let supervisor = Supervisor::from_environment().unwrap_or_else(|error| {
            warn!(%error, "the service manager cannot be told how things are");
            Supervisor::nobody()
        });
        Ok(Self { supervisor, every: timeout.map(|timeout| timeout / 2) })
    }

    pub fn ready(&self) {
        self.tell("READY=1");
    }

    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Tells systemd twice per period that the agent is well, as long as it is. Sleeps forever if nobody watches.
    pub async fn run(&self, health: impl Fn() -> Result<(), String>) {
        let Some(every) = self.every.filter(|_| self.supervisor.is_there()) else {
            return std::future::pending().await;
        };
        info!(interval = ?every, "Starting systemd watchdog with interval");
        loop {
            match health() {
                Ok(()) => self.tell("WATCHDOG=1"),
                Err(error) => {
                    error!(
                        error,
                        "Do not notify watchdog this iteration as the kubelet is reportedly not healthy"
                    );
                }
            }
            tokio::time::sleep(every).await;
        }
    }

    fn tell(&self, state: &str) {
        match self.supervisor.tell(state) {
            Ok(()) => debug!(state, "told the service manager"),
            Err(error) => warn!(state, %error, "Failed to notify the service manager"),
        }
    }
}

/// How long systemd waits for a sign of life. `None`: it does not, or it watches another process.
fn timeout(microseconds: Option<String>, pid: Option<String>, me: u32) -> anyhow::Result<Option<Duration>> {
    let number = |name: &str, text: &str| match text.parse::<i64>() {
        Ok(number) if number > 0 => Ok(number.unsigned_abs()),
        Ok(_) => Err(anyhow!("configure watchdog: error {name} must be a positive number")),
        Err(_) => Err(anyhow!("configure watchdog: error converting {name}: {text:?} is not a number")),
    };
    let Some(microseconds) = microseconds.filter(|text| !text.is_empty()) else { return Ok(None) };
    let timeout = Duration::from_micros(number("WATCHDOG_USEC", &microseconds)?);
    if let Some(pid) = pid.filter(|text| !text.is_empty())
        && number("WATCHDOG_PID", &pid)? != u64::from(me)
    {
        return Ok(None);
    }
    if timeout <= TOO_CLOSE {
        bail!("configure watchdog timeout too small: {timeout:?}");
    }
    Ok(Some(timeout))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(microseconds: &str, pid: &str) -> Result<Option<Duration>, String> {
        timeout(Some(microseconds.to_owned()), Some(pid.to_owned()), 42).map_err(|error| error.to_string())
    }

    #[test]
    fn systemds_wish_is_read() {
        assert_eq!(said("", ""), Ok(None));
        assert_eq!(said("30000000", "42"), Ok(Some(Duration::from_secs(30))));
        assert_eq!(said("30000000", ""), Ok(Some(Duration::from_secs(30))));
        assert_eq!(said("30000000", "7"), Ok(None), "another process is watched");
        assert_eq!(said("1000000", ""), Err("configure watchdog timeout too small: 1s".to_owned()));
        assert_eq!(
            said("0", ""),
            Err("configure watchdog: error WATCHDOG_USEC must be a positive number".to_owned())
        );
        assert!(said("soon", "").is_err());
        assert!(said("30000000", "-1").is_err());
    }
}
