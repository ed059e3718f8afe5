//! Signals.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Signals {
    /// SIGTERM and SIGINT ask for an orderly end.
    pub stop: Stop,
    /// SIGHUP asks for a look at the configuration.
    pub hangup: Signal,
}

impl Signals {
    /// From now on no signal of these finds its default action.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            stop: Stop {
                terminate: signal(SignalKind::terminate())?,
                interrupt: signal(SignalKind::interrupt())?,
            },
            hangup: signal(SignalKind::hangup())?,
        })
    }
}

pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// Cancel-safe: both arms are.
    pub async fn wanted(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}
