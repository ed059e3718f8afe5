//! The reference page, written from the table. `docs/reference/configuration.md` is checked to be the same.

use std::fmt::Write;

use crate::gates::{GATES, Gate};
use crate::help;
use crate::schema::{Effect, GROUPS, Setting};

pub fn page() -> String {
    let mut out = String::from(
        "# Configuration\n\n\
         This page is written by `crates/config/src/reference.rs` from the table that the agent itself reads. To write it\n\
         again: `CRABLET_WRITE_DOCS=1 cargo test -p crablet-config reference`.\n\n\
         Fields belong into the file behind `--config` (a `KubeletConfiguration` of `kubelet.config.k8s.io/v1beta1`, YAML\n\
         or JSON) or into a `*.conf` below `--config-dir`. Defaults, then the file, then drop-ins, then flags: each later\n\
         one wins. `crablet config view` shows what came out and who said it; `crablet config check FILE` checks a file.\n\n\
         | mark | meaning |\n|---|---|\n\
         | yes | this version acts upon it |\n\
         | live | the same, and a change of the file (or SIGHUP) applies it without a restart |\n\
         | later | accepted and checked, not acted upon yet |\n\
         | none | accepted, without effect, also upstream |\n",
    );
    for group in GROUPS {
        let _ = write!(out, "\n## {}\n\n", group.title);
        out.push_str("| field | flag | default | effect | what it is |\n|---|---|---|---|---|\n");
        for setting in group.settings {
            row(&mut out, setting);
        }
    }
    gates(&mut out);
    out
}

fn row(out: &mut String, setting: &Setting) {
    let code =
        |text: &str| if text.is_empty() { String::new() } else { format!("`{}`", text.replace('|', "\\|")) };
    let flag = setting.flag.map(|flag| format!("--{flag}{}", help::placeholder(setting.kind)));
    let effect = match setting.effect {
        Effect::Yes if setting.live => "live",
        Effect::Yes => "yes",
        Effect::Later => "later",
        Effect::None => "none",
    };
    let _ = writeln!(
        out,
        "| {} | {} | {} | {effect} | {} |",
        code(setting.field.unwrap_or_default()),
        code(&flag.unwrap_or_default()),
        code(setting.default.unwrap_or_default()),
        setting.doc.replace('|', "\\|"),
    );
}

fn gates(out: &mut String) {
    out.push_str(
        "\n## Feature gates\n\n\
         All gates of Kubernetes v1.36 are known, those of other components included, so that one set can be given to\n\
         every component. A locked gate cannot be set to anything else.\n\n\
         | gate | stage | default |\n|---|---|---|\n",
    );
    for Gate { name, stage, default, locked } in GATES {
        let locked = if *locked { ", locked" } else { "" };
        let _ = writeln!(out, "| {name} | {} | {default}{locked} |", stage.name());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_reference_page_is_what_the_table_makes() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
        let page = super::page();
        if std::env::var_os("CRABLET_WRITE_DOCS").is_some() {
            std::fs::create_dir_all(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference"))
                .expect("a folder");
            std::fs::write(path, &page).expect("a file");
        }
        let found = std::fs::read_to_string(path).unwrap_or_default();
        assert!(found == page, "{path} is old: run with CRABLET_WRITE_DOCS=1");
    }
}
