//! `--help`, written from the table.

use std::fmt::Write;

use crate::schema::{Effect, GROUPS, Items, Kind, Pairs, Setting};
use crate::{config, explain, pulls};

const WIDTH: usize = 100;

pub fn text() -> String {
    let mut out = format!(
        "Crablet runs the pods of one node. It behaves like the kubelet of Kubernetes {}.\n\n\
         Usage: crablet [flags]\n       {}\n       {}\n       {}\n       {}\n       {CHECK}\n\n\
         Most flags have a field in the file behind --config, named in brackets: that is the better place.\n\
         `(later)` marks what is accepted and checked but not acted upon yet.\n",
        crate::KUBERNETES_VERSION,
        explain::USAGE,
        pulls::USAGE,
        config::VIEW,
        config::CHECK,
    );
    for group in GROUPS {
        let _ = write!(out, "\n{}:\n", group.title);
        for setting in group.settings.iter().filter(|setting| setting.effect != Effect::None) {
            describe(&mut out, setting);
        }
        if group.title == "General" {
            out.push_str("  -h, --help\n          Print this.\n");
            out.push_str(
                "      --version[=raw]\n          Print the version. With a version of the same numbers, such as \
                 v1.36.4-mine:\n          run, and report that one.\n",
            );
        }
    }
    without_effect(&mut out);
    out
}

pub const CHECK: &str = "crablet check [-o text|json] [the agent's flags]";

pub fn check() -> String {
    format!(
        "Usage: {CHECK}\n\n\
         Looks at this machine with the eyes of an agent that has these flags, and prints what is fine, what is not, and\n\
         the fix. Nothing is changed.\n"
    )
}

fn describe(out: &mut String, setting: &Setting) {
    let short = setting.short.map_or("    ".to_owned(), |letter| format!("-{letter}, "));
    let later = if setting.effect == Effect::Later { "  (later)" } else { "" };
    let _ = match (setting.flag, setting.field) {
        (Some(flag), _) => writeln!(out, "  {short}--{flag}{}{later}", placeholder(setting.kind)),
        (None, field) => {
            writeln!(out, "      {} (in the config file only){later}", field.unwrap_or_default())
        }
    };
    wrap(out, "          ", setting.doc);
    let mut notes = Vec::new();
    if let Some(default) = setting.default.filter(|default| !default.is_empty()) {
        notes.push(format!("default {default}"));
    }
    if let (Some(_), Some(field)) = (setting.flag, setting.field) {
        notes.push(format!("config field {field}"));
    }
    if !notes.is_empty() {
        wrap(out, "          ", &format!("[{}]", notes.join("; ")));
    }
}

fn without_effect(out: &mut String) {
    out.push_str("\nAccepted, without effect, as upstream has it:\n");
    let names: Vec<String> = GROUPS
        .iter()
        .flat_map(|group| group.settings)
        .filter(|setting| setting.effect == Effect::None)
        .map(|setting| setting.flag.map_or_else(|| setting.key(), |flag| format!("--{flag}")))
        .collect();
    wrap(out, "  ", &names.join(", "));
}

/// How the value of a flag is written.
pub fn placeholder(kind: Kind) -> String {
    match kind {
        Kind::Bool => "[=true|false]".to_owned(),
        Kind::Int32 | Kind::Int64 | Kind::Level | Kind::Float => " NUMBER".to_owned(),
        Kind::Duration | Kind::Flush => " DURATION".to_owned(),
        Kind::Text(name) => format!(" {name}"),
        Kind::Path => " PATH".to_owned(),
        Kind::Ip => " IP".to_owned(),
        Kind::Quantity => " SIZE".to_owned(),
        Kind::TextList(name) => format!(" {name},..."),
        Kind::Int32List => " NUMBER,...".to_owned(),
        Kind::TextMap(Pairs::Less) => " NAME<VALUE,...".to_owned(),
        Kind::TextMap(Pairs::One) => " NAME=VALUE".to_owned(),
        Kind::TextMap(_) => " NAME=VALUE,...".to_owned(),
        Kind::BoolMap => " NAME=true|false,...".to_owned(),
        Kind::Headers => " NAME:VALUE,...".to_owned(),
        Kind::Objects(Items::Taints) => " KEY=VALUE:EFFECT,...".to_owned(),
        Kind::Objects(Items::VModule) => " PATTERN=NUMBER,...".to_owned(),
        Kind::Objects(Items::ReservedMemory | Items::ShutdownByPriority) => " NODE:NAME=SIZE,...".to_owned(),
    }
}

fn wrap(out: &mut String, indent: &str, text: &str) {
    let mut line = indent.to_owned();
    for word in text.split_whitespace() {
        if line.len() > indent.len() && line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(out, "{line}");
            line = indent.to_owned();
        }
        if line.len() > indent.len() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(out, "{line}");
}
