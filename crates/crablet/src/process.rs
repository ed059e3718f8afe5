//! The process around the agent: what it needs before it starts, what it listens to while it runs, how it ends.
//!
//! | module | what it does |
//! |---|---|
//! | [`command_line`] | what was typed, kept to be read again |
//! | [`start`] | lock file, limits, folders, kubeconfig: what happens once, before the agent |
//! | [`folders`] | the folders that other programs on a node expect, with their modes |
//! | [`join`] | how the node becomes known to its cluster: kubeconfig, client, certificates |
//! | [`signals`] | SIGTERM and SIGINT ask for an orderly end, SIGHUP for a look at the configuration |
//! | [`reload`] | a changed configuration, applied to the running agent as far as that goes |
//! | [`run_once`] | `--runonce`: start the pods of the manifests, report, leave |
//! | [`watchdog`] | systemd is told that the agent is ready, well, or on its way out |

pub mod command_line;
pub mod folders;
pub mod join;
pub mod reload;
pub mod run_once;
pub mod signals;
pub mod start;
pub mod watchdog;
