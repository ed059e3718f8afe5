//! The UID of a static pod: a hash of what the pod is and where it comes from, equal to upstream v1.36's bit for bit. A
//! node that changes its kubelet would otherwise end each of its static pods and begin it again.
//!
//! Upstream does not hash the manifest. It decodes it, fills in defaults, converts it into the types that it uses inside
//! of itself, and hashes what a debugging printer writes of them. So that is done here, too:
//!
//! ```text
//! Pod ─ internal ─> JSON in the shape of those types ─ print, with types.txt and amount ─> text ─> hash
//! ```
//!
//! | module | what it knows |
//! |---|---|
//! | `internal` | where the inner types differ from the API's |
//! | `types` | the table `types.txt`: the inner types, their fields in order, and the JSON names of these |
//! | `print` | how the printer writes a value |
//! | `amount` | how upstream holds a quantity in memory, which is printed as well |
//!
//! The table is made by a program beside the pinned version of upstream, `crates/testbed/go/kube/podtypes`.
//!
//! Not equal are UIDs of manifests that have points in time in them and no UID, for upstream prints the machine's time
//! zone along with them; those with amounts of thirty digits; and those in JSON, not YAML, whose amounts are numbers with
//! an exponent.

mod amount;
mod internal;
mod pod_amounts;
mod print;
#[cfg(test)]
mod tests;
pub(super) mod types;

use std::fmt;

use super::Origin;
use crate::api::Pod;
use crate::hash::Fnv128;

/// Expects a pod with the API's defaults, but with its amounts as they were written.
pub(super) fn of(pod: &Pod, origin: &Origin<'_>, node_name: &str) -> String {
    let mut hash = Hashing(Fnv128::default());
    print::pod(&internal::shape(pod), &mut hash);
    let hash = match origin {
        Origin::File { path } => hash.0.with(format!("host:{node_name}file:{path}").as_bytes()),
        Origin::Submitted { name } => hash.0.with(format!("host:{node_name}submitted:{name}").as_bytes()),
        Origin::Url { url } => hash.0.with(format!("url:{url}").as_bytes()),
    };
    format!("{:032x}", hash.finish())
}

/// Hashes what is written to it: the text of a large pod is many times as large.
struct Hashing(Fnv128);

impl fmt::Write for Hashing {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0 = self.0.with(text.as_bytes());
        Ok(())
    }
}
