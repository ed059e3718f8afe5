//! Upstream's own test suites as judges of a kubelet.
//!
//! [`ginkgo`] runs one of their programs and tells what happens meanwhile ([`stream`]); [`report`] is how it ended.
//! [`registry`] is where their images can be pulled from. [`node`] is the world that the node suite wants around it, since it starts the kubelet itself.

pub mod ginkgo;
pub mod node;
pub mod registry;
pub mod report;
pub mod stream;

use anyhow::Result;

use crate::scratch::Scratch;
use crate::wait::Deadline;

/// Ends what runs of a suite that belongs to the scratch folder.
pub(crate) fn kill(scratch: &Scratch, deadline: Deadline) {
    node::traces::kill(scratch, deadline);
}

/// Removes what such a suite left on the machine outside of the folder.
pub(crate) fn remove_traces(scratch: &Scratch) -> Result<()> {
    node::traces::remove(scratch)
}
