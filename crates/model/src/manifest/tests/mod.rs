//! Manifests in, pods or one-line refusals out.

mod accepted;
mod life_cycle;
mod never_panics;
mod refused;
mod security;
mod served;
mod volumes;

use super::*;

const NODE: &str = "Node1";
const FILE: Origin<'static> = Origin::File { path: "/etc/kubernetes/manifests/web.yaml" };

const MINIMAL: &str = "\
apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  containers:
  - name: app
    image: nginx:1
";

fn decode(text: &str) -> Result<Decoded, ManifestError> {
    decode_pod(text.as_bytes(), &FILE, NODE, Gates::default())
}

fn accepted(text: &str) -> Decoded {
    decode(text).unwrap_or_else(|error| panic!("refused: {error}\n{text}"))
}

fn refusal(text: &str) -> String {
    match decode(text) {
        Ok(_) => panic!("accepted:\n{text}"),
        Err(error) => error.to_string(),
    }
}

/// A whole manifest from lines of its `spec`, two blanks deep.
fn with_spec(lines: &str) -> String {
    format!("{MINIMAL}{}", indented(lines, 2))
}

/// A whole manifest from lines of its container, four blanks deep.
fn with_container(lines: &str) -> String {
    format!("{MINIMAL}{}", indented(lines, 4))
}

fn with_metadata(lines: &str) -> String {
    MINIMAL.replace("spec:\n", &format!("{}spec:\n", indented(lines, 2)))
}

fn indented(lines: &str, blanks: usize) -> String {
    lines.lines().map(|line| format!("{:blanks$}{line}\n", "")).collect()
}
