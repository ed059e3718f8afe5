//! The story: read what was asked for, and either answer it or run the agent until it is told to stop.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow};
use crablet::process::command_line::CommandLine;
use crablet::process::join::{self, Membership};
use crablet::process::reload::Reloader;
use crablet::process::signals::Signals;
use crablet::process::watchdog::Watchdog;
use crablet::process::{run_once, start};
use crablet::wiring::{Agent, Listeners, MainPort, Ports};
use crablet::{cli, logging};
use crablet_config::{Command, Settings};
use crablet_host::lock::Contention;
use crablet_host::{keeper, memory, process};
use tracing::{error, info};

/// How long what is under way may take to end. Containers keep running either way.
const DRAIN: Duration = Duration::from_secs(2);

fn main() -> ExitCode {
    if std::env::args_os().nth(1).is_some_and(|arg| arg == keeper::KEEPER_ARGUMENT) {
        return if keeper::run().is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    // Before the first thread: the allocator's arenas cannot be taken back.
    memory::limit_arenas();
    let line = CommandLine::of_this_process();
    let command = match line.read() {
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
        Command::Pulls { root_dir } => cli::pulls::run(&root_dir).and_then(|text| cli::print(&text)),
        Command::Config(answer) => return cli::config::run(&answer),
        Command::Check(options) => return cli::check::run(&options),
        Command::Run(settings) => return run(&settings, line),
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
fn run(settings: &Settings, line: CommandLine) -> ExitCode {
    let log = logging::init(&settings.logging);
    start::introduce(settings);
    let code = match with_runtime(settings, line, &log) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            error!(error = format!("{error:#}"), "Crablet cannot go on");
            ExitCode::FAILURE
        }
    };
    log.flush();
    code
}

fn with_runtime(settings: &Settings, line: CommandLine, log: &logging::Control) -> anyhow::Result<()> {
    let watchdog = Watchdog::from_environment()?;
    let _prepared = start::prepare(settings)?;
    // A node agent waits most of the time: two threads with small stacks are enough, and cost little.
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(512 << 10)
        .max_blocking_threads(8)
        .enable_all()
        .build()
        .context("cannot start the async runtime")?;
    let result = match settings.run_once {
        true => runtime.block_on(run_once(settings)),
        false => runtime.block_on(agent(settings, line, log, &watchdog)),
    };
    // A blocked disk must not keep the process: what must survive is on disk before it is acted on.
    runtime.shutdown_timeout(DRAIN);
    result
}

async fn agent(
    settings: &Settings,
    line: CommandLine,
    log: &logging::Control,
    watchdog: &Watchdog,
) -> anyhow::Result<()> {
    // First of all, so that no signal finds its default action in place.
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    let mut contention = watch_lock(settings)?;
    let mut reloader = Reloader::new(line, settings);
    let listeners = Listeners::open(settings).await?;
    announce(settings, &listeners);
    let mut membership = join::join(settings).await?;
    let main_port = MainPort::open(settings, membership.is_some()).await?;
    let (ports, farewell) = Ports::real(settings, membership.as_ref().map(Membership::api))?;
    let mut agent = Agent::start(settings, ports);
    agent.serve(listeners);
    if let Some(main_port) = main_port {
        main_port.serve(settings, &mut agent, log).await?;
    }
    watchdog.ready();

    let health = agent.health();
    let flush = log.keep_flushed(settings.logging.flush_frequency);
    let chores = async { tokio::join!(keep_memory_small(), flush, watchdog.run(health)) };
    tokio::pin!(chores);
    let result = loop {
        // Every arm is cancel-safe. Only a reload comes back here: it is over before the others are polled again.
        tokio::select! {
            signal = signals.stop.wanted() => {
                info!(signal, "Stopping; containers keep running");
                break Ok(());
            }
            result = noticed(&mut contention) => {
                info!("Somebody else wants the lock file: stopping; containers keep running");
                break result.context("cannot watch the lock file");
            }
            error = agent.ended() => break Err(error),
            error = lost(&mut membership) => break Err(error),
            reason = reloader.wanted(&mut signals.hangup) => {
                if let Some(settings) = reloader.look(reason).await {
                    log.set_levels(&settings.logging);
                    agent.apply(settings);
                }
            }
            _ = &mut chores => {} // they never end
        }
    };
    // Who asks a second time does not want to wait.
    process::leave_at_next_signal();
    watchdog.stopping();
    // Ends all its tasks, but not what they asked of the runtime.
    drop(agent);
    farewell.say(DRAIN).await;
    result
}

/// `--runonce`. What it starts stays.
async fn run_once(settings: &Settings) -> anyhow::Result<()> {
    let mut signals = Signals::listen().context("cannot listen to signals")?;
    let listeners = Listeners::local_only(settings).await?;
    let (ports, farewell) = Ports::real(settings, None)?;
    let mut agent = Agent::start(settings, ports);
    agent.serve(listeners);
    // Cancel-safe: none is polled again after another has won.
    let result = tokio::select! {
        signal = signals.stop.wanted() => Err(anyhow!("runonce failed: {signal} came before every pod ran")),
        result = run_once::run(&agent, settings) => result,
    };
    drop(agent);
    farewell.say(DRAIN).await;
    result
}

fn watch_lock(settings: &Settings) -> anyhow::Result<Option<Contention>> {
    match &settings.lock_file {
        Some(path) if settings.exit_on_lock_contention => {
            info!(path = %path.display(), "Watching for inotify events");
            Contention::watch(path).map(Some).context("cannot watch the lock file")
        }
        _ => Ok(None),
    }
}

/// Returns when the node can no longer be part of its cluster without a new start.
async fn lost(membership: &mut Option<Membership>) -> anyhow::Error {
    match membership {
        Some(membership) => membership.lost().await,
        None => std::future::pending().await,
    }
}

async fn noticed(contention: &mut Option<Contention>) -> std::io::Result<()> {
    match contention {
        Some(contention) => contention.noticed().await,
        None => std::future::pending().await,
    }
}

fn announce(settings: &Settings, listeners: &Listeners) {
    if let Some(healthz) = &listeners.healthz {
        info!(address = %healthz.address, "Serving /healthz");
    }
    if let Some(address) = listeners.read_only.as_ref().and_then(|l| l.local_addr().ok()) {
        info!(%address, "Serving pods to anyone who asks");
    }
    info!(path = %settings.local_socket().display(), "Listening on the local socket");
}

/// Gives memory back soon after the start, which is the largest burst, and then when a burst has left much behind.
async fn keep_memory_small() {
    const WORTHWHILE: u64 = 1 << 20;
    let mut settled = 0;
    let mut pause = Duration::from_secs(5);
    loop {
        tokio::time::sleep(pause).await;
        pause = Duration::from_secs(10);
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
