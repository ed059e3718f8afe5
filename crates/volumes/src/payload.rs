//! What a volume of files shall hold.

use std::collections::BTreeMap;
use std::fmt;

const MAX_NAME: usize = 255;
const MAX_PATH: usize = 4096;

/// A file of a payload. `Debug` hides the content: it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct PayloadFile {
    pub content: Vec<u8>,
    pub mode: u32,
    pub owner: Option<u32>,
}

impl fmt::Debug for PayloadFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PayloadFile")
            .field("mode", &self.mode)
            .field("owner", &self.owner)
            .finish_non_exhaustive()
    }
}

/// Files by their clean path in the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Payload(BTreeMap<String, PayloadFile>);

impl Payload {
    /// A later file takes the place of an earlier one of the same path.
    pub fn add(&mut self, path: &str, file: PayloadFile) -> Result<(), String> {
        check_path(path)?;
        self.0.insert(clean(path), file);
        Ok(())
    }

    pub fn add_all(&mut self, other: Payload) {
        self.0.extend(other.0);
    }

    pub fn files(&self) -> impl Iterator<Item = (&str, &PayloadFile)> {
        self.0.iter().map(|(path, file)| (path.as_str(), file))
    }

    pub fn get(&self, path: &str) -> Option<&PayloadFile> {
        self.0.get(path)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What shows in the volume's folder: the first element of each path, with the owner of a file that lies there.
    pub fn visible(&self) -> BTreeMap<&str, Option<u32>> {
        let first = |path| match str::split_once(path, '/') {
            Some((folder, _)) => (folder, None),
            None => (path, self.0[path].owner),
        };
        self.0.keys().map(|path| first(path)).collect()
    }
}

/// As upstream refuses paths: what begins with two dots is the writer's own.
fn check_path(path: &str) -> Result<(), String> {
    if path.is_empty() {
        return Err(format!("invalid path: must not be empty: {path:?}"));
    }
    if path.starts_with('/') {
        return Err(format!("invalid path: must be relative path: {path}"));
    }
    if path.len() > MAX_PATH {
        return Err(format!("invalid path: must be less than or equal to {MAX_PATH} characters"));
    }
    for item in path.split('/') {
        if item == ".." {
            return Err(format!("invalid path: must not contain '..': {path}"));
        }
        if item.len() > MAX_NAME {
            return Err(format!(
                "invalid path: filenames must be less than or equal to {MAX_NAME} characters"
            ));
        }
    }
    // Looked at in its clean form too: `./..data` is the same file.
    if path.starts_with("..") || clean(path).starts_with("..") {
        return Err(format!("invalid path: must not start with '..': {path}"));
    }
    if clean(path) == "." {
        return Err(format!("invalid path: must name a file: {path}"));
    }
    if path.contains('\0') {
        return Err("invalid path: must not contain NUL".to_owned());
    }
    Ok(())
}

/// Without empty elements and dots. Two dots are kept: whoever may not have them has to ask first.
pub(crate) fn clean(path: &str) -> String {
    let parts: Vec<_> = path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let absolute = path.starts_with('/');
    match (absolute, parts.join("/")) {
        (true, path) => format!("/{path}"),
        (false, path) if path.is_empty() => ".".to_owned(),
        (false, path) => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(path: &str) -> String {
        let file = PayloadFile { content: Vec::new(), mode: 0o644, owner: None };
        Payload::default().add(path, file).expect_err(path)
    }

    #[test]
    fn paths_that_lead_out_or_hide_the_writer_are_refused() {
        assert_eq!(refusal(""), "invalid path: must not be empty: \"\"");
        assert_eq!(refusal("/etc/passwd"), "invalid path: must be relative path: /etc/passwd");
        assert_eq!(refusal("a/../../b"), "invalid path: must not contain '..': a/../../b");
        assert_eq!(refusal("..data"), "invalid path: must not start with '..': ..data");
        assert_eq!(refusal("./..data"), "invalid path: must not start with '..': ./..data");
        assert_eq!(
            refusal(&"x".repeat(256)),
            "invalid path: filenames must be less than or equal to 255 characters"
        );
        assert_eq!(
            refusal(&"x/".repeat(2050)),
            "invalid path: must be less than or equal to 4096 characters"
        );
    }
}
