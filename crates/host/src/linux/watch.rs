//! inotify as a stream.

use std::io;
use std::path::Path;

use futures_util::{StreamExt, stream};
use inotify::{Event, EventMask, EventStream, Inotify, WatchMask};

use crate::files::{FolderEvent, FolderEvents};

/// Enough for a burst; an event with the longest possible name takes 272 bytes.
const BUFFER: usize = 4096;

/// Blocking: looks the path up.
pub fn start(path: &Path) -> io::Result<Inotify> {
    let inotify = Inotify::init()?;
    let mask = WatchMask::CREATE
        | WatchMask::MOVED_TO
        | WatchMask::CLOSE_WRITE
        | WatchMask::ATTRIB
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF;
    inotify.watches().add(path, mask)?;
    Ok(inotify)
}

pub fn stream(inotify: Inotify) -> io::Result<FolderEvents> {
    let events = inotify.into_event_stream(vec![0; BUFFER])?;
    Ok(stream::unfold(Some(events), next).boxed())
}

type Events = EventStream<Vec<u8>>;

async fn next(events: Option<Events>) -> Option<(io::Result<FolderEvent>, Option<Events>)> {
    let mut events = events?;
    match events.next().await? {
        Ok(event) => match translate(event) {
            Meaning::Event(event) => Some((Ok(event), Some(events))),
            Meaning::SelfGone => Some((Ok(FolderEvent::Rescan), None)),
        },
        Err(error) => Some((Err(error), None)),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    Event(FolderEvent),
    SelfGone,
}

fn translate(event: Event<std::ffi::OsString>) -> Meaning {
    let name = event.name.map(|name| name.to_string_lossy().into_owned());
    if event.mask.contains(EventMask::Q_OVERFLOW) {
        return Meaning::Event(FolderEvent::Rescan);
    }
    if event
        .mask
        .intersects(EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::UNMOUNT | EventMask::IGNORED)
    {
        return Meaning::SelfGone;
    }
    // A watched file that is replaced while somebody has it open gives only this event for its link count, and the
    // watch stays with the old file: start over rather than miss the new one.
    if event.mask.contains(EventMask::ATTRIB) && name.is_none() {
        return Meaning::SelfGone;
    }
    Meaning::Event(if event.mask.contains(EventMask::DELETE) {
        FolderEvent::Gone(name)
    } else if event.mask.contains(EventMask::MOVED_FROM) {
        FolderEvent::MovedAway { name, cookie: event.cookie }
    } else if event.mask.contains(EventMask::MOVED_TO) {
        FolderEvent::MovedHere { name, cookie: event.cookie }
    } else {
        FolderEvent::Changed(name)
    })
}

#[cfg(test)]
mod tests;
