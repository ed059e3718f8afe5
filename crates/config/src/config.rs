//! `crablet config view` and `crablet config check`: what is configured, and is it right?

use std::fmt::Write;
use std::path::Path;

use serde_json::Value;

use crate::error::{Problem, UsageError};
use crate::flags::{self, Said};
use crate::schema::{Effect, GROUPS, Kind, Setting, Zero};
use crate::sources::{self, Strictness};
use crate::tree::{Origin, Tree};
use crate::{Answer, Command, Environment, Files, resolve, schema};

pub const VIEW: &str = "crablet config view [-o origin|yaml|json] [the agent's flags]";
pub const CHECK: &str = "crablet config check FILE...";

pub fn parse(args: &[String], env: &Environment, files: &impl Files) -> Result<Command, UsageError> {
    match args.split_first().map(|(first, rest)| (first.as_str(), rest)) {
        Some(("view", rest)) => view(rest, files),
        Some(("check", rest)) => check(rest, env, files),
        Some(("--help" | "-h", _)) => Ok(Command::Help(help())),
        Some((other, _)) => Err(Problem::new(format!("unknown command config {other}"))
            .hint(format!("{VIEW}, or {CHECK}"))
            .into()),
        None => Err(Problem::new("config needs a command").hint(format!("{VIEW}, or {CHECK}")).into()),
    }
}

fn help() -> String {
    format!(
        "Usage: {VIEW}\n       {CHECK}\n\n\
         `view` takes the agent's own flags and prints the configuration that it would run with: each value with its\n\
         origin, or a KubeletConfiguration in YAML or JSON.\n\
         `check` says whether files are valid, without starting anything. Unknown fields are an error here.\n"
    )
}

fn view(args: &[String], files: &impl Files) -> Result<Command, UsageError> {
    let said = flags::scan(args, schema::by_flag, &[("output", Some('o'))])?;
    if said.help {
        return Ok(Command::Help(help()));
    }
    said.no_positional()?;
    let output = said.extra.last().map_or("origin", |(_, value)| value.as_str());
    if !["origin", "yaml", "json"].contains(&output) {
        let problem = Problem::new(format!("unknown output {output:?}"));
        return Err(problem.hint("give `origin`, `yaml` or `json`").into());
    }
    let loaded = sources::load(&said, files, Strictness::Lenient)?;
    let stdout = match output {
        "json" => format!("{:#}\n", loaded.tree.to_json()),
        "yaml" => yaml(&loaded.tree.to_json()),
        _ => origins(&loaded.tree),
    };
    // Problems with the whole do not hide it: who looks at it wants to find them.
    let (problems, warnings) = crate::validate::validate(&loaded.tree, &loaded.gates);
    let mut stderr = String::new();
    for warning in loaded.warnings.iter().chain(&warnings) {
        let _ = writeln!(stderr, "warning: {warning}");
    }
    let failed = !problems.is_empty();
    if failed {
        let _ = writeln!(stderr, "{}", UsageError::from(problems));
    }
    Ok(Command::Config(Answer { stdout, stderr, failed }))
}

/// Every setting with its value and who said it, by group.
fn origins(tree: &Tree) -> String {
    let mut out = String::new();
    let not_yet = sources::not_yet(tree);
    for group in GROUPS {
        let _ = writeln!(out, "{}# {}", if out.is_empty() { "" } else { "\n" }, group.title);
        for setting in group.settings {
            let key = setting.key();
            let value =
                tree.get(&key).map_or_else(|| unset(setting).to_owned(), |value| shown(setting, value));
            let mut origin = match tree.origin(&key) {
                Origin::Flag => format!("flag --{}", setting.flag.unwrap_or_default()),
                origin => origin.to_string(),
            };
            let said = [Some(key.clone()), setting.flag.map(|flag| format!("--{flag}"))];
            if setting.effect == Effect::Later && said.iter().flatten().any(|name| not_yet.contains(name)) {
                origin.push_str("; accepted, not acted upon yet");
            }
            let _ = writeln!(out, "{:<60} # {origin}", format!("{key}: {value}"));
        }
    }
    out
}

/// What holds where there is neither a value nor a default.
fn unset(setting: &Setting) -> &'static str {
    match (setting.zero, setting.kind) {
        (_, Kind::TextList(_) | Kind::Int32List | Kind::Objects(_)) => "[]",
        (_, Kind::TextMap(_) | Kind::BoolMap | Kind::Headers) => "{}",
        (_, Kind::Text(_) | Kind::Path | Kind::Ip) => "\"\"",
        (Zero::Counts, _) => "-",
        (_, Kind::Bool) => "false",
        _ => "0",
    }
}

fn shown(setting: &Setting, value: &Value) -> String {
    match (setting.kind, value) {
        // Header values and passwords may be credentials.
        (Kind::Headers, Value::Object(map)) => {
            let names: Vec<_> = map.keys().map(|name| format!("{name}: <masked>")).collect();
            format!("{{{}}}", names.join(", "))
        }
        _ if setting.flag == Some("storage-driver-password") => "<masked>".to_owned(),
        (_, Value::String(text)) if !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic()) => {
            text.clone()
        }
        _ => value.to_string(),
    }
}

/// Can this text stand in YAML without quotes, and stay a text?
fn plain(text: &str) -> bool {
    let safe = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '/')
        && text.chars().all(safe)
        && matches!(crate::yaml::parse(text).map(|node| node.data), Ok(crate::yaml::Data::Text(same)) if same == text)
}

/// Block style; names in the order of their bytes.
fn yaml(value: &Value) -> String {
    let mut out = String::new();
    write_yaml(&mut out, value, 0);
    out
}

fn write_yaml(out: &mut String, value: &Value, depth: usize) {
    let indent = "  ".repeat(depth);
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let name = if plain(name) { name.clone() } else { Value::from(name.as_str()).to_string() };
                let _ = write!(out, "{indent}{name}:");
                write_value(out, value, depth);
            }
        }
        Value::Array(items) => {
            for item in items {
                // JSON is YAML: one line per item.
                let _ = writeln!(out, "{indent}- {item}");
            }
        }
        other => {
            let _ = writeln!(out, "{indent}{other}");
        }
    }
}

fn write_value(out: &mut String, value: &Value, depth: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write_yaml(out, value, depth + 1);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write_yaml(out, value, depth);
        }
        Value::String(text) if plain(text) => {
            let _ = writeln!(out, " {text}");
        }
        other => {
            let _ = writeln!(out, " {other}");
        }
    }
}

fn check(args: &[String], env: &Environment, files: &impl Files) -> Result<Command, UsageError> {
    let said = flags::scan(args, |_| None, &[])?;
    if said.help {
        return Ok(Command::Help(help()));
    }
    if said.positional.is_empty() {
        return Err(Problem::new("config check needs a file").hint(CHECK).into());
    }
    let mut answer = Answer::default();
    for file in &said.positional {
        check_file(&mut answer, file, env, files);
    }
    Ok(Command::Config(answer))
}

fn check_file(answer: &mut Answer, file: &str, env: &Environment, files: &impl Files) {
    // The name of this machine is not the file's fault.
    let env = Environment {
        hostname: if env.hostname.is_empty() { "node".to_owned() } else { env.hostname.clone() },
    };
    let said = Said::with_config(Path::new(file));
    let checked =
        sources::load(&said, files, Strictness::Strict).and_then(|loaded| resolve::resolve(loaded, &env));
    match checked {
        Ok(settings) => {
            for warning in &settings.warnings {
                let _ = writeln!(answer.stderr, "warning: {file}: {warning}");
            }
            let _ = write!(answer.stdout, "{file} is valid");
            if !settings.not_yet.is_empty() {
                let _ =
                    write!(answer.stdout, "; accepted, not acted upon yet: {}", settings.not_yet.join(", "));
            }
            answer.stdout.push('\n');
        }
        Err(error) => {
            let _ = writeln!(answer.stderr, "{error}");
            answer.failed = true;
        }
    }
}
