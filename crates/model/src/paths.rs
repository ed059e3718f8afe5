//! Paths inside containers.

/// The path from the root on in its shortest form, as Go's `filepath.Clean("/" + path)`: `a//b/../c/` is `/a/c`.
pub fn clean_from_root(path: &str) -> String {
    let mut parts = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::clean_from_root;

    #[test]
    fn paths_begin_at_the_root_and_are_short() {
        for (path, expected) in [
            ("words/last", "/words/last"),
            ("/dev/termination-log", "/dev/termination-log"),
            ("/dev//words/", "/dev/words"),
            ("./a/./b", "/a/b"),
            ("a/../../b", "/b"),
            ("..", "/"),
            ("/", "/"),
            ("", "/"),
            ("a/...", "/a/..."),
        ] {
            assert_eq!(clean_from_root(path), expected, "{path:?}");
        }
    }
}
