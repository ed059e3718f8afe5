//! Progress for people, on stderr: one lower-case line for each step that may take a while.

/// Says what happens next.
pub fn step(message: impl AsRef<str>) {
    eprintln!("==> {}", message.as_ref());
}

/// Says something beside the steps that the reader may want to act on.
pub fn note(message: impl AsRef<str>) {
    eprintln!("    {}", message.as_ref());
}
