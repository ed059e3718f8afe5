//! The table on the terminal.

use super::Plan;
use super::figures::Results;
use crate::table;

pub fn print(plan: &Plan, results: &Results) {
    for section in results.sections(plan.pods) {
        let heading = [&*section.title.to_uppercase(), "CRABLET", "UPSTREAM", "RATIO", "FLOOR", "BAR"];
        let mut rows = vec![heading.map(str::to_owned).to_vec()];
        for line in &section.lines {
            rows.push(std::iter::once(line.what.clone()).chain(line.cells()).collect());
        }
        println!("\n{}", table::render(&rows));
    }
}
