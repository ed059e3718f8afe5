//! Names of signals: the API's `SIGRTMIN+1` is CRI's `SIGRTMINPLUS1`.

use crablet_protos::cri::Signal;

/// A name that CRI does not know is the runtime's choice.
pub fn number(name: &str) -> i32 {
    let name = name.replace('+', "PLUS").replace('-', "MINUS");
    Signal::from_str_name(&name).unwrap_or_default().into()
}

/// `None`: the runtime does not say.
pub fn name(number: i32) -> Option<String> {
    match Signal::try_from(number).ok()? {
        Signal::RuntimeDefault => None,
        signal => Some(signal.as_str_name().replace("PLUS", "+").replace("MINUS", "-")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_apis_names_have_cris_numbers() {
        for (name_of, number_of) in [
            ("SIGABRT", 1),
            ("SIGTERM", 23),
            ("SIGRTMIN", 35),
            ("SIGRTMIN+15", 50),
            ("SIGRTMAX-14", 51),
            ("SIGRTMAX", 65),
        ] {
            assert_eq!(number(name_of), number_of, "{name_of}");
            assert_eq!(name(number_of).as_deref(), Some(name_of));
        }
    }

    #[test]
    fn what_nobody_knows_is_nothing() {
        assert_eq!((number("SIGNONSENSE"), number("")), (0, 0));
        assert_eq!([name(0), name(66), name(-1)], [None, None, None]);
    }
}
