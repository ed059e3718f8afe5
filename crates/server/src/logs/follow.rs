//! Waiting until there is more to read.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use futures_util::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchMask};
use tokio::sync::watch;
use tracing::debug;

/// As upstream's: a change that nobody told of is found this late.
const CHECK_EVERY: Duration = Duration::from_secs(1);
/// An event with the longest possible name takes 272 bytes.
const BUFFER: usize = 1024;

/// Why to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// There is more in the file.
    Written,
    /// Something else, or nothing for a while: there may be another file by now.
    Changed,
    /// The container has ended: nothing comes after what is there.
    Ended,
}

/// Watches a log's folder, so that a new file of the same name is noticed too.
pub struct Watch {
    name: OsString,
    /// `None`: the kernel grants no more watches; looked at once per [`CHECK_EVERY`] then.
    events: Option<EventStream<Vec<u8>>>,
}

impl Watch {
    pub fn start(path: &Path) -> Self {
        let events = watch_folder(path);
        if let Err(error) = &events {
            debug!(err = %error, path = %path.display(), "Cannot watch the log file, looking at it every second instead");
        }
        Self { name: path.file_name().unwrap_or_default().to_owned(), events: events.ok() }
    }

    /// Until the log may have changed, or the container has ended. Cancel-safe.
    pub async fn wait(&mut self, ended: &mut watch::Receiver<bool>) -> Noticed {
        let Self { name, events } = self;
        let noticed = async {
            loop {
                match events {
                    Some(stream) => match stream.next().await {
                        Some(Ok(event)) => {
                            if let Some(noticed) = meaning(&event, name) {
                                return noticed;
                            }
                        }
                        Some(Err(_)) | None => *events = None,
                    },
                    None => std::future::pending().await,
                }
            }
        };
        tokio::select! {
            biased;
            ended = ended.wait_for(|ended| *ended) => {
                // A sender that is gone will not tell of an end any more.
                let _ = ended;
                Noticed::Ended
            }
            noticed = noticed => noticed,
            () = tokio::time::sleep(CHECK_EVERY) => Noticed::Changed,
        }
    }
}

fn watch_folder(path: &Path) -> std::io::Result<EventStream<Vec<u8>>> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::MODIFY | WatchMask::CREATE | WatchMask::MOVED_TO;
    inotify.watches().add(path.parent().unwrap_or(Path::new(".")), mask)?;
    inotify.into_event_stream(vec![0; BUFFER])
}

/// `None`: it is about another file. Lost events may have been about any.
fn meaning(event: &inotify::Event<OsString>, name: &OsString) -> Option<Noticed> {
    if event.mask.contains(EventMask::Q_OVERFLOW) {
        return Some(Noticed::Changed);
    }
    let noticed = if event.mask.contains(EventMask::MODIFY) { Noticed::Written } else { Noticed::Changed };
    (event.name.as_ref() == Some(name)).then_some(noticed)
}
