//! Keeps connections open for a moment after the agent has died.
//!
//! A container runtime takes a closed connection for "give up what you are doing". Cut off in the middle of a sandbox or
//! a container start, containerd (1.6 and 2.3 alike) leaves shims, tasks, addresses and firewall rules behind that no
//! later call can remove. So a small second process holds a duplicate of each connection. It reads nothing while the
//! agent lives. When the agent dies, however suddenly, the calls under way run to their end before the runtime sees the
//! connection close, and the next life of the agent finds whole things.
//!
//! ```text
//!  agent ── connection ──> runtime
//!    └─ duplicate of its descriptor ──> keeper: waits for the agent's death, then LINGER, then closes
//! ```
//!
//! An agent that leaves in good order, with no call under way, says so, and the keeper leaves at once: a service manager
//! that stops the unit waits for both.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// The first argument that makes the program be the keeper instead of the agent.
pub const KEEPER_ARGUMENT: &str = "keep-connections";
/// Longer than calls take, except those that are stuck anyway.
const LINGER: Duration = Duration::from_secs(30);
/// When the service manager wants everything gone, it gets that soon.
const LINGER_WHEN_TOLD_TO_GO: Duration = Duration::from_secs(2);
/// What the agent says: here is a connection, or: nothing is under way any more.
const KEEP: u8 = b'k';
const LET_GO: u8 = b'g';
/// Far more than one agent has.
const MAX_CONNECTIONS: usize = 64;

/// The agent's end: dropping it, or dying, tells the keeper that the agent has gone.
pub struct Keeper {
    control: OwnedFd,
}

impl Keeper {
    /// Starts the keeper as a process of its own, in a process group of its own, so that what hits the agent misses it.
    pub fn spawn() -> io::Result<Self> {
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Command::new("/proc/self/exe")
            .arg(KEEPER_ARGUMENT)
            .stdin(Stdio::from(theirs))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        Ok(Self { control: ours })
    }

    /// Hands a duplicate of the connection over.
    pub fn keep(&self, connection: BorrowedFd<'_>) -> io::Result<()> {
        let fds = [connection];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no room for a descriptor"));
        }
        self.send(KEEP, &mut ancillary)
    }

    /// Nothing is under way any more: there is nothing left to keep.
    pub fn let_go(&self) -> io::Result<()> {
        self.send(LET_GO, &mut SendAncillaryBuffer::default())
    }

    fn send(&self, word: u8, ancillary: &mut SendAncillaryBuffer<'_, '_, '_>) -> io::Result<()> {
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        sendmsg(&self.control, &[IoSlice::new(&[word])], ancillary, flags)?;
        Ok(())
    }
}

/// The keeper's whole life. Standard input is the agent's control socket.
pub fn run() -> io::Result<()> {
    let control = io::stdin();
    let told_to_go = termination_signals()?;
    let mut held: Vec<OwnedFd> = Vec::new();
    while wait_for_agent(control.as_fd(), &mut held)? {}

    let mut until = Instant::now() + LINGER;
    while !held.is_empty() && Instant::now() < until {
        if drain(&mut held, told_to_go.as_fd(), until)? {
            until = until.min(Instant::now() + LINGER_WHEN_TOLD_TO_GO);
        }
    }
    Ok(())
}

/// Takes connections over until the agent is gone: then `false`. Asks for no readability of what it holds, because every
/// byte belongs to the agent; a hang-up is reported anyway.
fn wait_for_agent(control: BorrowedFd<'_>, held: &mut Vec<OwnedFd>) -> io::Result<bool> {
    let mut fds = vec![PollFd::from_borrowed_fd(control, PollFlags::IN)];
    fds.extend(held.iter().map(|fd| PollFd::new(fd, PollFlags::empty())));
    poll(&mut fds, None)?;
    let gone: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
    let spoke = !fds[0].revents().is_empty();
    drop(fds);
    let mut gone = gone.into_iter();
    held.retain(|_| !gone.next().unwrap_or(false));
    if !spoke {
        return Ok(true);
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0_u8];
    let got = recvmsg(control, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(fds) = message {
            held.extend(fds);
        }
    }
    if held.len() > MAX_CONNECTIONS {
        held.remove(0); // the oldest has been closed by the agent long ago
    }
    if got.bytes > 0 && byte[0] == LET_GO {
        held.clear();
        return Ok(false);
    }
    Ok(got.bytes > 0)
}

/// Reads answers away, so that the runtime never blocks on them. Returns whether the keeper was told to go.
fn drain(held: &mut Vec<OwnedFd>, told_to_go: BorrowedFd<'_>, until: Instant) -> io::Result<bool> {
    let left = until.saturating_duration_since(Instant::now());
    let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
    let mut fds = vec![PollFd::from_borrowed_fd(told_to_go, PollFlags::IN)];
    fds.extend(held.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    poll(&mut fds, Some(&left))?;
    let told = !fds[0].revents().is_empty();
    let ready: Vec<bool> = fds[1..].iter().map(|fd| !fd.revents().is_empty()).collect();
    drop(fds);
    let mut buffer = [0_u8; 16 << 10];
    let mut ready = ready.into_iter();
    held.retain(|fd| {
        // Readable and empty: the runtime has closed its end.
        !ready.next().unwrap_or(false) || rustix::io::read(fd, &mut buffer).is_ok_and(|n| n > 0)
    });
    if told {
        let _ = rustix::io::read(told_to_go, &mut buffer); // said once is enough
    }
    Ok(told)
}

/// SIGTERM and SIGINT as something to poll for.
#[allow(unsafe_code)]
fn termination_signals() -> io::Result<OwnedFd> {
    // SAFETY: the set is initialised by sigemptyset before it is used; the descriptor that signalfd returns is new and
    // owned by nobody else.
    unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        let mut set = set.assume_init();
        libc::sigaddset(&raw mut set, libc::SIGTERM);
        libc::sigaddset(&raw mut set, libc::SIGINT);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC);
        if fd < 0 { Err(io::Error::last_os_error()) } else { Ok(OwnedFd::from_raw_fd(fd)) }
    }
}

/// For whoever hands connections over without knowing where they go.
impl std::fmt::Debug for Keeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keeper").field("control", &self.control.as_raw_fd()).finish()
    }
}
