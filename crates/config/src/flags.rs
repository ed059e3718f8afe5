//! The command line's grammar, as upstream's parser (pflag) reads it: `--flag=value`, `--flag value`, `--bool`,
//! `--bool=false`, `-v 4`, `-v=4`, `-v4`; underscores in names are hyphens; later ones win over earlier ones.

use std::ffi::OsString;
use std::path::PathBuf;

use crablet_model::duration;

use crate::draft::Draft;
use crate::error::{Problem, UsageError, nearest};
use crate::table::{self, SETTINGS, Setting, Take};
use crate::upstream;

/// What was typed, not yet understood.
#[derive(Default)]
pub struct Said {
    pub help: bool,
    pub version: bool,
    /// What is not a flag.
    pub positional: Vec<String>,
    values: Vec<(&'static Setting, Vec<String>)>,
}

pub fn as_text(args: impl Iterator<Item = OsString>) -> Result<Vec<String>, UsageError> {
    args.map(|arg| {
        arg.into_string()
            .map_err(|arg| UsageError::from(Problem::new(format!("argument {arg:?} is not valid UTF-8"))))
    })
    .collect()
}

/// Sorts the arguments by flag. `find` says which flags there are.
pub fn scan(args: &[String], find: impl Fn(&str) -> Option<&'static Setting>) -> Result<Said, Problem> {
    let mut said = Said::default();
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            said.positional.extend(args.by_ref().cloned());
        } else if let Some(long) = arg.strip_prefix("--") {
            let (name, value) = match long.split_once('=') {
                Some((name, value)) => (name, Some(value.to_owned())),
                None => (long, None),
            };
            if name.is_empty() || name.starts_with('-') {
                return Err(Problem::new(format!("bad flag syntax: {arg}")));
            }
            said.long(&name.replace('_', "-"), value, &find, &mut args)?;
        } else if arg.len() > 1 && arg.starts_with('-') {
            said.short(&arg[1..], &find, &mut args)?;
        } else {
            said.positional.push(arg.clone());
        }
    }
    Ok(said)
}

impl Said {
    fn long<'a>(
        &mut self,
        name: &str,
        value: Option<String>,
        find: &impl Fn(&str) -> Option<&'static Setting>,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        match name {
            "help" => self.help = switch(name, value.as_deref())?,
            // Upstream also knows `--version=raw`, whose form is Go's own; the plain line says as much.
            "version" if value.as_deref() == Some("raw") => self.version = true,
            "version" => self.version = switch(name, value.as_deref())?,
            _ => {
                let setting = find(name).ok_or_else(|| unknown(name, find))?;
                let value = match (value, setting.take) {
                    (Some(value), _) => value,
                    // A bare switch never swallows the next argument.
                    (None, Take::Bool(_)) => "true".to_owned(),
                    (None, _) => next(&format!("--{name}"), rest)?,
                };
                self.push(setting, value);
            }
        }
        Ok(())
    }

    fn short<'a>(
        &mut self,
        letters: &str,
        find: &impl Fn(&str) -> Option<&'static Setting>,
        rest: &mut impl Iterator<Item = &'a String>,
    ) -> Result<(), Problem> {
        if letters == "h" {
            self.help = true;
            return Ok(());
        }
        let mut chars = letters.chars();
        let letter = chars.next();
        let setting = SETTINGS.iter().find(|setting| letter.is_some() && setting.short == letter);
        let Some(setting) = setting.filter(|setting| setting.flag.is_some_and(|flag| find(flag).is_some()))
        else {
            let problem = Problem::new(format!("unknown flag: -{letters}"));
            let name = letters.split('=').next().unwrap_or_default();
            return Err(match find(name) {
                Some(_) => problem.hint(format!("long flags have two dashes: `--{name}`")),
                None => problem,
            });
        };
        let attached = chars.as_str();
        let value = match attached.strip_prefix('=').unwrap_or(attached) {
            "" if attached.is_empty() => next(&format!("-{letters}"), rest)?,
            value => value.to_owned(),
        };
        self.push(setting, value);
        Ok(())
    }

    fn push(&mut self, setting: &'static Setting, value: String) {
        match self.values.iter_mut().find(|(known, _)| known.flag == setting.flag) {
            Some((_, values)) => values.push(value),
            None => self.values.push((setting, vec![value])),
        }
    }

    /// The last value of a flag.
    pub fn last(&self, flag: &str) -> Option<&str> {
        let (_, values) = self.values.iter().find(|(setting, _)| setting.flag == Some(flag))?;
        values.last().map(String::as_str)
    }

    pub fn apply(&self, draft: &mut Draft) -> Result<(), Problem> {
        self.values.iter().try_for_each(|(setting, values)| take(draft, setting, values))
    }

    /// The agent takes no arguments: a word that stands alone is a mistake.
    pub fn no_positional(&self) -> Result<(), Problem> {
        let Some(word) = self.positional.first() else { return Ok(()) };
        let problem = Problem::new(format!("unexpected argument {word:?}"));
        Err(match bool_of(word) {
            Some(_) => {
                problem.hint(format!("a switch takes its value after `=`, like `--cpu-cfs-quota={word}`"))
            }
            None if word == "explain" => problem.hint("a subcommand comes first: `crablet explain POD`"),
            None => problem.hint("run `crablet --help` for what can be said"),
        })
    }
}

fn next<'a>(flag: &str, rest: &mut impl Iterator<Item = &'a String>) -> Result<String, Problem> {
    rest.next().cloned().ok_or_else(|| Problem::new(format!("flag needs an argument: {flag}")))
}

fn switch(name: &str, value: Option<&str>) -> Result<bool, Problem> {
    let Some(value) = value else { return Ok(true) };
    bool_of(value)
        .ok_or_else(|| Problem::new(format!("invalid argument {value:?} for --{name}: {WANT_BOOL}")))
}

fn unknown(name: &str, find: &impl Fn(&str) -> Option<&'static Setting>) -> Problem {
    if upstream::FLAGS.contains(&name) {
        return Problem::new(format!("flag --{name} is not supported by this version yet"));
    }
    let problem = Problem::new(format!("unknown flag: --{name}"));
    let known = SETTINGS.iter().filter_map(|setting| setting.flag).filter(|flag| find(flag).is_some());
    match (nearest(name, known), table::by_field(name)) {
        (Some(known), _) => problem.hint(format!("did you mean `--{known}`?")),
        (None, Some(Setting { flag: Some(flag), .. })) => {
            problem.hint(format!("`{name}` is a config field; the flag is `--{flag}`"))
        }
        (None, Some(_)) => problem.hint(format!("`{name}` can only be said in the file behind `--config`")),
        (None, None) => problem,
    }
}

const WANT_BOOL: &str = "expected `true` or `false`";

/// What Go's `strconv.ParseBool` accepts.
fn bool_of(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

/// Reads the values of one flag, in the order in which they were said.
pub fn take(draft: &mut Draft, setting: &Setting, values: &[impl AsRef<str>]) -> Result<(), Problem> {
    let refuse = |value: &str, want: &str| {
        Problem::new(format!("invalid argument {value:?} for {}: {want}", setting.name()))
    };
    let mut list = Vec::new();
    let mut headers = Vec::new();
    for value in values.iter().map(AsRef::as_ref) {
        match setting.take {
            Take::Bool(set) => set(draft, bool_of(value).ok_or_else(|| refuse(value, WANT_BOOL))?),
            Take::Number(from, to, set) => {
                let number = value.parse().ok().filter(|number| (from..=to).contains(number));
                set(draft, number.ok_or_else(|| refuse(value, &want_number(from, to)))?);
            }
            Take::Duration(set) => set(
                draft,
                duration::parse(value).map_err(|error| {
                    Problem::new(format!("invalid argument for {}: {error}", setting.name()))
                })?,
            ),
            Take::Text(_, set) => set(draft, value.to_owned()),
            Take::Path(set) => set(draft, PathBuf::from(value)),
            Take::List(..) => list.extend(split(value).map(str::to_owned)),
            Take::Headers(_) => {
                for pair in split(value) {
                    headers.push(header(pair).ok_or_else(|| {
                        // What was typed may be a credential: it is not repeated.
                        Problem::new(format!("invalid argument for {}: a pair has no `:`", setting.name()))
                            .hint("write it like `--manifest-url-header=Accept:application/json`")
                    })?);
                }
            }
        }
    }
    // The first occurrence of a flag clears what the file said; later occurrences add to it.
    match setting.take {
        Take::List(_, set) => set(draft, list),
        Take::Headers(set) => set(draft, headers),
        _ => (),
    }
    Ok(())
}

pub(crate) fn want_number(from: i64, to: i64) -> String {
    match to {
        to if to == i64::from(i32::MAX) => format!("expected a whole number, at least {from}"),
        _ => format!("expected a whole number from {from} to {to}"),
    }
}

fn split(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|part| !part.is_empty())
}

fn header(pair: &str) -> Option<(String, String)> {
    let (name, value) = pair.split_once(':')?;
    Some((name.trim().to_owned(), value.trim().to_owned()))
}
