//! Does the configuration make sense as a whole? Every rule of upstream v1.36, all of them tried, so that one run names
//! every mistake.
//!
//! Messages that start with `invalid configuration` are upstream's own, because tools and people search for them; the hint
//! below says what to do. Upstream finds some of these mistakes only later in its start, or never; here they are all found
//! before anything is touched.

use crate::error::Problem;
use crate::gates::Gates;
use crate::schema;
use crate::tree::{Origin, Tree};

mod allocatable;
mod eviction;
mod flags;
mod images;
mod logging;
mod numbers;
mod resources;
mod serving;
mod shutdown;
mod words;

pub use flags::node_ips;

/// What is wrong with the whole. Warnings are for what upstream only logs.
pub fn validate(tree: &Tree, gates: &Gates) -> (Vec<Problem>, Vec<String>) {
    let mut check = Check { tree, gates, problems: Vec::new(), warnings: Vec::new() };
    numbers::check(&mut check);
    words::check(&mut check);
    images::check(&mut check);
    shutdown::check(&mut check);
    allocatable::check(&mut check);
    resources::check(&mut check);
    eviction::check(&mut check);
    serving::check(&mut check);
    logging::check(&mut check);
    flags::check(&mut check);
    (check.problems, check.warnings)
}

struct Check<'a> {
    tree: &'a Tree,
    gates: &'a Gates,
    problems: Vec<Problem>,
    warnings: Vec<String>,
}

impl Check<'_> {
    /// `key` is whose fault it is: the place where it was said is named.
    fn refuse(&mut self, key: &str, message: impl Into<String>, hint: impl Into<String>) {
        let message = message.into();
        let message = match self.tree.origin(key) {
            Origin::File(path, line) => format!("{path}:{line}: {message}"),
            Origin::Default | Origin::Flag => message,
        };
        self.problems.push(Problem::new(message).hint(hint));
    }

    /// As [`Check::refuse`], in upstream's words.
    fn invalid(&mut self, key: &str, message: impl std::fmt::Display, hint: impl Into<String>) {
        self.refuse(key, format!("invalid configuration: {message}"), hint);
    }

    /// How upstream names a field.
    fn title(&self, key: &str) -> String {
        schema::by_field(key).map_or(key.to_owned(), schema::Setting::title)
    }
}
