//! The few words of a developer command's line.

use std::str::FromStr;

use anyhow::{Context, Result, bail};

pub struct Args(Vec<String>);

impl Args {
    pub fn from_env() -> Args {
        Args(std::env::args().skip(1).collect())
    }

    /// Takes the next word as a command's name.
    pub fn command(&mut self) -> Option<String> {
        if self.0.is_empty() { None } else { Some(self.0.remove(0)) }
    }

    /// Takes `--name`; says whether it was there.
    pub fn flag(&mut self, name: &str) -> bool {
        let before = self.0.len();
        self.0.retain(|word| word != name);
        self.0.len() != before
    }

    /// Takes `--name VALUE` or `--name=VALUE`.
    pub fn value<T: FromStr>(&mut self, name: &str) -> Result<Option<T>>
    where
        T::Err: std::error::Error + Send + Sync + 'static,
    {
        let prefix = format!("{name}=");
        let Some(at) = self.0.iter().position(|word| word == name || word.starts_with(&prefix)) else {
            return Ok(None);
        };
        let word = self.0.remove(at);
        let text = match word.strip_prefix(&prefix) {
            Some(text) => text.to_owned(),
            None if at < self.0.len() => self.0.remove(at),
            None => bail!("`{name}` needs a value"),
        };
        text.parse().map(Some).with_context(|| format!("bad value `{text}` for `{name}`"))
    }

    /// Nothing may be left over.
    pub fn done(self) -> Result<()> {
        match self.0.first() {
            Some(word) => bail!("unexpected `{word}`"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(words: &[&str]) -> Args {
        Args(words.iter().map(|word| word.to_string()).collect())
    }

    #[test]
    fn flags_and_values_are_taken_out() {
        let mut args = args(&["--pods", "7", "--keep", "--seconds=3"]);
        assert_eq!(args.value::<u32>("--pods").unwrap(), Some(7));
        assert_eq!(args.value::<u32>("--seconds").unwrap(), Some(3));
        assert_eq!(args.value::<u32>("--other").unwrap(), None);
        assert!(args.flag("--keep") && !args.flag("--keep"));
        args.done().unwrap();
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert_eq!(
            args(&["--pods"]).value::<u32>("--pods").unwrap_err().to_string(),
            "`--pods` needs a value"
        );
        assert_eq!(args(&["oops"]).done().unwrap_err().to_string(), "unexpected `oops`");
    }
}
