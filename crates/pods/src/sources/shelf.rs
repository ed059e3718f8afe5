//! A folder of manifests, one pod per file, and what is known of each file.
//!
//! The rule for a file that cannot be used: as long as something has its name, the last good version of its pod stays.
//! Only a file that is gone, or a link whose target is, seen twice, takes its pod with it: editors that save by renaming
//! leave a moment without it. One that was deleted or moved out of the folder and is back a moment later is a new file, as
//! upstream has it: its pod ends and begins again, also where its UID is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use crablet_host::{FileKind, Files, FolderEntry};
use crablet_model::PodUid;
use crablet_model::hash::fnv1a_128;
use crablet_model::manifest::{self, Gates, MAX_MANIFEST_BYTES, Origin};

use super::Source;
use super::deadline::Patient;
use super::mux::Stated;
use super::outlet::{Closed, Outlet};

/// The name of the only entry when the path is itself a manifest.
const ITSELF: &str = "";

/// Names to look at.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Dirty {
    pub everything: bool,
    pub names: BTreeSet<String>,
}

impl Dirty {
    pub fn everything() -> Self {
        Self { everything: true, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        !self.everything && self.names.is_empty()
    }
}

/// Something to tell the operator, once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Info(String),
    Warning(String),
}

pub(super) struct Shelf {
    path: PathBuf,
    source: Source,
    node_name: String,
    gates: Gates,
    files: Arc<dyn Files>,
    entries: BTreeMap<String, Entry>,
    listing: Patient<Listing>,
    /// Why nothing can be said of the path as a whole.
    trouble: Option<String>,
    is_readable: bool,
    /// The pods may differ from what was stated last.
    is_changed: bool,
    lines: Vec<Line>,
}

#[derive(Default)]
struct Entry {
    /// Of the content that was read last. The content itself is not kept.
    digest: Option<u128>,
    /// Of the file when that content was read: what has not changed since is not read again.
    stamp: Option<u64>,
    /// What was wrong with that content.
    refusal: Option<String>,
    /// From the last good content.
    pod: Option<Stated>,
    trouble: Option<Trouble>,
    /// Why another file's pod is taken instead.
    shadow: Option<String>,
    /// Was not there when last looked for.
    is_missing: bool,
    /// The kernel told that it was deleted or moved out, which was perhaps too short to be seen.
    was_gone: bool,
    /// It went and came back with a pod of the same UID: that one is to end and to begin again.
    has_returned: bool,
    reading: Patient<Found>,
}

impl Entry {
    fn uid(&self) -> Option<PodUid> {
        self.pod.as_ref().map(|pod| pod.id.uid.clone())
    }
}

/// Why a file cannot be used. It is said when it begins and when it changes.
#[derive(PartialEq, Eq)]
struct Trouble {
    reason: String,
    /// The disk's fault rather than the file's: looking again may help.
    is_passing: bool,
}

enum Listing {
    Nothing,
    Manifest,
    Folder(Vec<FolderEntry>),
    Other,
}

enum Found {
    Nothing,
    BrokenLink,
    Folder,
    Other,
    Content(Vec<u8>),
}

impl Shelf {
    pub fn new(
        path: PathBuf,
        source: Source,
        node_name: String,
        gates: Gates,
        files: Arc<dyn Files>,
    ) -> Self {
        Self {
            path,
            source,
            node_name,
            gates,
            files,
            entries: BTreeMap::new(),
            listing: Patient::default(),
            trouble: None,
            is_readable: false,
            is_changed: true,
            lines: Vec::new(),
        }
    }

    /// Looks at what may have changed.
    pub async fn look(&mut self, dirty: &Dirty) {
        if dirty.everything {
            self.look_at_everything().await;
            return;
        }
        for name in &dirty.names {
            self.look_at(name, None).await;
        }
    }

    async fn look_at_everything(&mut self) {
        let (files, path) = (self.files.clone(), self.path.clone());
        let listing = self.listing.run(|| Box::pin(async move { list(&*files, &path).await })).await;
        self.is_readable = listing.is_ok();
        let path = self.shown(ITSELF);
        let (trouble, present) = match listing {
            Ok(Listing::Folder(entries)) => (None, entries),
            Ok(Listing::Manifest) => {
                (None, vec![FolderEntry { name: ITSELF.to_owned(), kind: Some(FileKind::File), stamp: None }])
            }
            // Made by the first manifest that is submitted.
            Ok(Listing::Nothing) if self.source == Source::Submitted => (None, Vec::new()),
            Ok(Listing::Nothing) => {
                (Some(Line::Info(format!("`{path}` does not exist yet: no manifests"))), Vec::new())
            }
            Ok(Listing::Other) => {
                let text = format!("`{path}` is neither a folder nor a file: no manifests are read from it");
                (Some(Line::Warning(text)), Vec::new())
            }
            Err(error) => {
                let text =
                    format!("cannot list the manifests in `{path}`: {error}; their pods stay as they are");
                self.set_trouble(Some(Line::Warning(text)));
                return;
            }
        };
        self.set_trouble(trouble);
        let present: BTreeMap<_, _> = present
            .into_iter()
            .filter(|entry| !is_hidden(&entry.name))
            .map(|entry| (entry.name, (entry.kind, entry.stamp)))
            .collect();
        let absent: Vec<_> =
            self.entries.keys().filter(|name| !present.contains_key(*name)).cloned().collect();
        for name in absent {
            self.take_in(&name, Ok(Found::Nothing));
        }
        for (name, (kind, stamp)) in present {
            let entry = self.entry(&name);
            if stamp.is_some() && entry.stamp == stamp && !entry.is_missing && !entry.was_gone {
                continue;
            }
            // A pod goes with what its link leads to, so a disk that fails must not look like a link to nowhere.
            let listed = Some(kind).filter(|kind| kind.is_some() || entry.pod.is_none());
            self.look_at(&name, listed).await;
            let entry = self.entry(&name);
            let is_settled = entry.trouble.as_ref().is_none_or(|trouble| !trouble.is_passing);
            entry.stamp = stamp.filter(|_| entry.digest.is_some() && !entry.is_missing && is_settled);
        }
    }

    fn set_trouble(&mut self, trouble: Option<Line>) {
        let text = match &trouble {
            Some(Line::Info(text) | Line::Warning(text)) => Some(text.clone()),
            None => None,
        };
        if self.trouble == text {
            return;
        }
        self.trouble = text;
        self.lines
            .push(trouble.unwrap_or_else(|| Line::Info(format!("`{}` can be read now", self.shown(ITSELF)))));
    }

    /// `kind` is what a listing said, if there was one.
    async fn look_at(&mut self, name: &str, kind: Option<Option<FileKind>>) {
        let (files, path) = (self.files.clone(), self.path_of(name));
        let reading = &mut self.entry(name).reading;
        let found = reading.run(|| Box::pin(async move { find(&*files, &path, kind).await })).await;
        self.take_in(name, found);
    }

    fn take_in(&mut self, name: &str, found: io::Result<Found>) {
        match found {
            Ok(Found::Content(content)) => return self.put(name, &content),
            Ok(Found::Nothing) => return self.miss(name),
            Ok(Found::BrokenLink) => {
                // As upstream: what it led to is gone, and the pod goes with it.
                if self.entry(name).pod.is_some() {
                    self.miss(name);
                }
                if self.entry(name).is_missing {
                    return;
                }
                self.complain(name, "it is a link that leads nowhere", false);
            }
            Ok(Found::Folder) => {
                self.complain(name, "it is a folder; folders inside are not looked into", false)
            }
            Ok(Found::Other) => {
                self.complain(name, "it is not a regular file (a fifo, socket or device)", false)
            }
            Err(error) => match error.kind() {
                // Names come as text, and this one lost bytes on the way.
                io::ErrorKind::NotFound if name.contains(char::REPLACEMENT_CHARACTER) => {
                    self.complain(name, "its name is not valid UTF-8", false);
                }
                io::ErrorKind::NotFound => return self.miss(name),
                io::ErrorKind::FileTooLarge => {
                    let reason = format!("it is larger than {} MiB", MAX_MANIFEST_BYTES >> 20);
                    self.complain(name, &reason, false);
                }
                io::ErrorKind::InvalidInput | io::ErrorKind::PermissionDenied => {
                    self.complain(name, &format!("it cannot be read: {error}"), false);
                }
                _ => self.complain(name, &format!("it cannot be read: {error}"), true),
            },
        }
        self.entry(name).is_missing = false;
    }

    fn entry(&mut self, name: &str) -> &mut Entry {
        self.entries.entry(name.to_owned()).or_default()
    }

    /// Takes a file's content as it is on the disk now.
    pub fn put(&mut self, name: &str, content: &[u8]) {
        let digest = fnv1a_128(content);
        let entry = self.entry(name);
        entry.is_missing = false;
        let was_gone = std::mem::take(&mut entry.was_gone);
        let uid = entry.uid();
        if entry.digest != Some(digest) {
            self.put_new(name, content);
            self.entry(name).digest = Some(digest);
        }
        let entry = self.entry(name);
        if was_gone && entry.refusal.is_none() && entry.uid() == uid {
            entry.has_returned = true;
            self.is_changed = true;
        }
        match self.entry(name).refusal.clone() {
            Some(refusal) => self.complain(name, &refusal, false),
            None if self.entry(name).trouble.take().is_some() => {
                self.lines.push(Line::Info(format!("manifest `{}` is good now", self.shown(name))));
            }
            None => {}
        }
    }

    fn put_new(&mut self, name: &str, content: &[u8]) {
        match self.decode(name, content) {
            Ok(decoded) => {
                for warning in decoded.warnings {
                    self.warn(format!("manifest `{}`: {warning}", self.shown(name)));
                }
                let entry = self.entry(name);
                entry.refusal = None;
                entry.pod = Some(Stated::of(&decoded.pod));
                self.is_changed = true;
            }
            Err(error) => {
                let entry = self.entry(name);
                entry.refusal = Some(error.to_string());
                // Other content is complained of anew, even where the words are the same.
                entry.trouble = None;
            }
        }
    }

    pub fn decode(&self, name: &str, content: &[u8]) -> Result<manifest::Decoded, manifest::ManifestError> {
        let path = self.path_of(name);
        // The path is part of the UID: it has to be spelled as upstream spells it.
        let path = if name == ITSELF { path } else { cleaned(&path) };
        let path = path.to_string_lossy();
        let origin = match self.source {
            Source::Submitted => Origin::Submitted { name },
            Source::File | Source::Url | Source::Api => Origin::File { path: &path },
        };
        manifest::decode_pod(content, &origin, &self.node_name, self.gates)
    }

    fn complain(&mut self, name: &str, reason: &str, is_passing: bool) {
        let entry = self.entry(name);
        let trouble = Some(Trouble { reason: reason.to_owned(), is_passing });
        if entry.trouble == trouble {
            return;
        }
        entry.trouble = trouble;
        let kept = entry.pod.as_ref().map(|pod| {
            format!("; pod `{}/{}` goes on with the last good version", pod.id.namespace, pod.id.name)
        });
        self.warn(format!(
            "manifest `{}` is not used: {reason}{}",
            self.shown(name),
            kept.unwrap_or_default()
        ));
    }

    fn warn(&mut self, text: String) {
        self.lines.push(Line::Warning(text));
    }

    fn miss(&mut self, name: &str) {
        let Some(entry) = self.entries.get_mut(name) else { return };
        if entry.is_missing || entry.pod.is_none() {
            self.remove(name);
        } else {
            entry.is_missing = true;
        }
    }

    /// Somebody deleted it or moved it away. It may be back by now. Says whether that is news of a pod.
    pub fn tell_gone(&mut self, name: &str) -> bool {
        let entry = self.entries.get_mut(name).filter(|entry| entry.pod.is_some());
        entry.is_some_and(|entry| !std::mem::replace(&mut entry.was_gone, true))
    }

    /// It is still in the folder, under another name.
    pub fn untell_gone(&mut self, name: &str) {
        if let Some(entry) = self.entries.get_mut(name) {
            entry.was_gone = false;
        }
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(entry) = self.entries.remove(name) {
            self.is_changed |= entry.pod.is_some();
        }
    }

    /// Names that were missed once and have to be looked for again before their pods go.
    pub fn doubtful(&self) -> BTreeSet<String> {
        self.named(|entry| entry.is_missing)
    }

    /// Files of which nothing is known because the disk failed.
    pub fn unread(&self) -> BTreeSet<String> {
        self.named(|entry| {
            entry.pod.is_none() && entry.trouble.as_ref().is_some_and(|trouble| trouble.is_passing)
        })
    }

    fn named(&self, is_meant: impl Fn(&Entry) -> bool) -> BTreeSet<String> {
        self.entries.iter().filter(|(_, entry)| is_meant(entry)).map(|(name, _)| name.clone()).collect()
    }

    /// Whether the last look at everything gave an answer. "There is nothing" is an answer.
    pub fn is_readable(&self) -> bool {
        self.is_readable
    }

    pub fn contains(&self, name: &str) -> bool {
        self.entries.contains_key(name)
    }

    /// Every file, with its pod or with what is wrong with it, or both.
    pub fn contents(&self) -> impl Iterator<Item = (&str, Option<&Stated>, Option<&str>)> {
        self.entries.iter().map(|(name, entry)| {
            (name.as_str(), entry.pod.as_ref(), entry.trouble.as_ref().map(|trouble| trouble.reason.as_str()))
        })
    }

    pub fn path_of(&self, name: &str) -> PathBuf {
        if name == ITSELF { self.path.clone() } else { self.path.join(name) }
    }

    /// The path as messages name it, on one line whatever it is made of.
    fn shown(&self, name: &str) -> String {
        self.path_of(name).to_string_lossy().replace(char::is_control, "?")
    }

    /// Tells the mux all pods, if they may have changed since it was told last.
    pub async fn state(&mut self, outlet: &Outlet) -> Result<(), Closed> {
        outlet.problems().set(self.source, self.problems());
        if !std::mem::take(&mut self.is_changed) {
            return Ok(());
        }
        let names = self.choose();
        for name in &names {
            let entry = self.entry(name);
            if std::mem::take(&mut entry.has_returned)
                && let Some(uid) = entry.uid()
            {
                outlet.take(self.source, &uid).await?;
            }
        }
        let mut pods: Vec<_> = names.iter().filter_map(|name| self.entries[name].pod.clone()).collect();
        outlet.set(self.source, &mut pods).await?;
        for (name, pod) in names.iter().zip(pods) {
            self.entry(name).pod = Some(pod);
        }
        Ok(())
    }

    fn problems(&self) -> Vec<String> {
        let troubled = self.contents().filter_map(|(name, _, trouble)| Some((name, trouble?)));
        troubled
            .map(|(name, reason)| format!("manifest `{}` is not used: {reason}", self.shown(name)))
            .collect()
    }

    /// The files whose pods are taken. Of two files that give the same pod the later one counts, as upstream v1.36 has it.
    fn choose(&mut self) -> Vec<String> {
        let mut chosen: Vec<String> = Vec::new();
        let mut taken: BTreeMap<String, &str> = BTreeMap::new();
        let mut shadows: BTreeMap<String, String> = BTreeMap::new();
        for (name, entry) in self.entries.iter().rev() {
            let Some(pod) = &entry.pod else { continue };
            let full_name = format!("pod `{}/{}`", pod.id.namespace, pod.id.name);
            let uid = format!("a pod with UID `{}`", pod.id.uid);
            let reason = [&full_name, &uid].into_iter().find_map(|what| {
                let other = self.shown(taken.get(what)?);
                Some(format!("`{other}`, which comes later by name, gives {what} too"))
            });
            if let Some(reason) = reason {
                shadows.insert(name.clone(), reason);
            } else {
                taken.extend([(full_name, name.as_str()), (uid, name.as_str())]);
                chosen.push(name.clone());
            }
        }
        chosen.reverse();
        let mut news = Vec::new();
        for (name, entry) in &mut self.entries {
            let shadow = shadows.remove(name);
            if entry.shadow != shadow {
                news.extend(shadow.as_ref().map(|reason| (name.clone(), reason.clone())));
                entry.shadow = shadow;
            }
        }
        for (name, reason) in news {
            self.warn(format!("manifest `{}` is ignored: {reason}", self.shown(&name)));
        }
        chosen
    }

    pub fn take_lines(&mut self) -> Vec<Line> {
        std::mem::take(&mut self.lines)
    }

    /// Says what there is to say.
    pub fn log(&mut self) {
        for line in self.take_lines() {
            match line {
                Line::Info(text) => tracing::info!("{text}"),
                Line::Warning(text) => tracing::warn!("{text}"),
            }
        }
    }
}

/// Without doubled slashes, `.` and `..`, and without a look at the disk.
fn cleaned(path: &Path) -> PathBuf {
    let mut cleaned = PathBuf::new();
    for component in path.components() {
        match (component, cleaned.components().next_back()) {
            (Component::ParentDir, Some(Component::Normal(_))) => {
                cleaned.pop();
            }
            (Component::ParentDir, Some(Component::RootDir)) | (Component::CurDir, _) => {}
            _ => cleaned.push(component),
        }
    }
    cleaned
}

pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.')
}

async fn list(files: &dyn Files, path: &Path) -> io::Result<Listing> {
    Ok(match files.kind(path).await? {
        None => Listing::Nothing,
        Some(FileKind::File) => Listing::Manifest,
        Some(FileKind::Other) => Listing::Other,
        Some(FileKind::Folder) => match files.list(path).await {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Listing::Nothing,
            entries => Listing::Folder(entries?),
        },
    })
}

async fn find(files: &dyn Files, path: &Path, kind: Option<Option<FileKind>>) -> io::Result<Found> {
    let kind = match kind {
        Some(listed) => listed,
        None => match files.kind(path).await? {
            // A link that leads nowhere looks like nothing.
            None if files.read_link(path).await?.is_none() => return Ok(Found::Nothing),
            kind => kind,
        },
    };
    Ok(match kind {
        None => Found::BrokenLink,
        Some(FileKind::Folder) => Found::Folder,
        Some(FileKind::Other) => Found::Other,
        Some(FileKind::File) => Found::Content(files.read(path, MAX_MANIFEST_BYTES).await?),
    })
}

#[cfg(test)]
mod tests;
