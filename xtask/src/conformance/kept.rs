//! What a run leaves for the one who must find out why: a file for each failed spec.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use crablet_testbed::suites::report::{Report, Spec, State};

/// File names must stay below 255 bytes, and people must be able to read them.
const LONGEST: usize = 120;

/// Writes them; gives the failed specs with their files.
pub fn failures(report: &Report, folder: &Path) -> Result<Vec<(String, PathBuf)>> {
    let failed = folder.join("failed");
    fs::create_dir_all(&failed)?;
    let mut written = Vec::new();
    for (number, spec) in report.with_state(State::Failed).chain(&report.suite_failures).enumerate() {
        let path = failed.join(format!("{:03}-{}.log", number + 1, slug(&spec.name)));
        fs::write(&path, text(spec)).with_context(|| format!("cannot write `{}`", path.display()))?;
        written.push((spec.name.clone(), path));
    }
    Ok(written)
}

fn text(spec: &Spec) -> String {
    format!(
        "{}\nafter {} s\n\n{}\n\n---- output ----\n{}",
        spec.name, spec.seconds, spec.message, spec.output
    )
}

fn slug(name: &str) -> String {
    let words = name.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    let slug = words.collect::<Vec<_>>().join("-").to_lowercase();
    slug.chars().take(LONGEST).collect()
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn names_make_readable_files() {
        let name =
            "[sig-node] Probing container should *not* be restarted with a exec \"cat /tmp/health\" probe";
        assert_eq!(
            slug(name),
            "sig-node-probing-container-should-not-be-restarted-with-a-exec-cat-tmp-health-probe"
        );
        assert!(slug(&name.repeat(9)).len() <= super::LONGEST);
    }
}
