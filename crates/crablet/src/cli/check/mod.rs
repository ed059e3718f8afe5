//! `crablet check`: looks at the machine before the agent does, and says what is fine, what is not, and the fix.
//!
//! | module | what it holds |
//! |---|---|
//! | [`wanted`] | what the agent would use, out of its settings |
//! | [`facts`] | what the machine is like: plain values, each perhaps unreadable |
//! | [`read`] | fills the facts; the only part that touches the machine, and never for longer than a few seconds |
//! | [`judge`] | from wanted and facts to findings; pure, one file per subject |
//! | [`report`] | findings as text or JSON |
//!
//! Nothing is changed on the machine, and a check that fails or hangs does not keep the others from running.

pub mod facts;
pub mod judge;
pub mod read;
pub mod report;
pub mod wanted;

use std::process::ExitCode;

use crablet_config::{CheckOptions, CheckOutput};

use report::Report;
use wanted::Wanted;

/// Prints the findings. Exit code 1 when one of them is an error.
pub fn run(options: &CheckOptions) -> ExitCode {
    let wanted = Wanted::new(&options.settings);
    let facts = read::facts(&wanted);
    let report = Report::new(&wanted, judge::all(&wanted, &facts));
    let text = match options.output {
        CheckOutput::Text => report.text(),
        CheckOutput::Json => report.json(),
    };
    if let Err(error) = super::print(&text) {
        eprintln!("error: {error:#}");
        return ExitCode::FAILURE;
    }
    if report.errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
