//! Paths that lead into a volume.

/// Never out of the folder that it begins in.
pub(super) fn inside(path: &str) -> Result<(), &'static str> {
    if path.starts_with('/') {
        return Err("must be a relative path");
    }
    no_way_up(path)
}

/// The path of a file that is made for the pod. Names that begin with `..` are how such files are swapped all at once.
pub(super) fn of_a_file(path: &str) -> Result<(), &'static str> {
    inside(path)?;
    if path.starts_with("..") { Err("must not begin with `..`") } else { Ok(()) }
}

pub(super) fn no_way_up(path: &str) -> Result<(), &'static str> {
    if path.split('/').any(|part| part == "..") { Err("must not contain `..`") } else { Ok(()) }
}
