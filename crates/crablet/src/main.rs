//! The story: read what was asked for, and either answer it or run the agent until it is told to stop.

use std::os::unix::fs::MetadataExt;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use crablet::wiring::{Agent, Listeners, Ports};
use crablet::{cli, logging};
use crablet_config::{Command, Environment, KUBERNETES_VERSION, Settings};
use crablet_host::{keeper, memory};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tracing::{error, info, warn};

/// How long what is under way may take to end. Containers keep running either way.
const DRAIN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == keeper::KEEPER_ARGUMENT) {
        return if keeper::run().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // Before the first thread: the allocator's arenas cannot be taken back.
    memory::limit_arenas();
    let env = Environment { hostname: cli::hostname() };
    let command = match crablet_config::parse(std::env::args_os().skip(1), &env, cli::read_config) {
        Ok(command) => command,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let result = match command {
        Command::Help(text) | Command::Version(text) => cli::print(&text),
        Command::Explain { namespace, pod, root_dir } => {
            cli::explain::run(&namespace, &pod, &root_dir).and_then(|text| cli::print(&text))
        }
        Command::Run(settings) => return run(&settings),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// From here on, everything is said in the log.
fn run(settings: &Settings) -> ExitCode {
    logging::init(settings.verbosity);
    info!(version = KUBERNETES_VERSION, node = settings.node_name, "Starting Crablet");
    if !std::fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0) {
        warn!("Crablet is not running as root; much will be refused to it");
    }
    match with_runtime(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(error = format!("{error:#}"), "Crablet cannot go on");
            ExitCode::FAILURE
        }
    }
}

fn with_runtime(settings: &Settings) -> anyhow::Result<()> {
    // A node agent waits most of the time: two threads with small stacks are enough, and cost little.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(512 << 10)
        .max_blocking_threads(8)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = runtime.block_on(agent(settings));
    // A blocked disk must not keep the process: what must survive is on disk before it is acted on.
    runtime.shutdown_timeout(DRAIN);
    result
}

async fn agent(settings: &Settings) -> anyhow::Result<()> {
    // First of all, so that no signal finds its default action in place.
    let mut stop = Stop::new().context("cannot listen to signals")?;
    let listeners = Listeners::open(settings).await?;
    announce(settings, &listeners);
    let mut agent = Agent::start(settings, Ports::real(settings)?);
    agent.serve(listeners);

    // Every arm is cancel-safe, and none is polled again after another has won.
    tokio::select! {
        signal = stop.wanted() => info!(signal, "Stopping; containers keep running"),
        error = agent.ended() => return Err(error),
        () = keep_memory_small() => (),
    }
    // Dropping the agent ends all its tasks.
    Ok(())
}

fn announce(settings: &Settings, listeners: &Listeners) {
    for (listener, what) in
        [(&listeners.healthz, "/healthz"), (&listeners.read_only, "pods to anyone who asks")]
    {
        if let Some(address) = listener.as_ref().and_then(|l| l.local_addr().ok()) {
            info!(%address, "Serving {what}");
        }
    }
    info!(path = %settings.local_socket().display(), "Listening on the local socket");
}

/// SIGTERM and SIGINT ask for an orderly end.
struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    fn new() -> std::io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn wanted(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Gives memory back soon after the start, which is the largest burst, and then when a burst has left much behind.
async fn keep_memory_small() {
    const WORTHWHILE: u64 = 1 << 20;
    let mut settled = 0;
    let mut pause = Duration::from_secs(5);
    loop {
        tokio::time::sleep(pause).await;
        pause = Duration::from_secs(60);
        if memory::resident_bytes().unwrap_or(u64::MAX) > settled + WORTHWHILE {
            // A trim that failed to run is tried again a minute later.
            let _ = tokio::task::spawn_blocking(give_back).await;
            settled = memory::resident_bytes().unwrap_or(u64::MAX - WORTHWHILE);
        }
    }
}

fn give_back() {
    memory::trim();
    memory::release_code();
}
