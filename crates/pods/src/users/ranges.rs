//! Which ids of the node may stand for pods' own: those that its administrator gave to the agent, else all but the
//! lowest. The errors are upstream's.

use std::num::{IntErrorKind, ParseIntError};
use std::ops::Range;

use crablet_model::runtime::IdRange;

/// Ids of a pod where the configuration says nothing.
const USUAL_LENGTH: u32 = 65536;

/// Ids of the node in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    pub first: u32,
    pub length: u32,
}

/// Ranges of one length, one for each pod. The one with number `n` begins with the id `n * length`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges {
    length: u32,
    numbers: Range<u32>,
}

/// All but the lowest, which are the node's own, in ranges of the usual length.
impl Default for Ranges {
    fn default() -> Self {
        Self { length: USUAL_LENGTH, numbers: 1..all(USUAL_LENGTH) }
    }
}

impl Ranges {
    /// Ranges of `length` ids (0 for the usual length), enough for `pods` pods, out of what was given.
    pub fn new(length: u32, given: Option<Given>, pods: u32) -> Result<Self, String> {
        let length = if length == 0 { USUAL_LENGTH } else { length };
        // Without any: all from `length` up to the last that there is.
        let Given { first, length: ids } =
            given.unwrap_or(Given { first: length, length: u32::MAX - (length - 1) });
        if !first.is_multiple_of(length) {
            return Err(format!("kubelet user assigned ID {first} is not a multiple of {length}"));
        }
        if first < length {
            return Err(format!("kubelet user assigned ID {first} must be greater or equal to {length}"));
        }
        if !ids.is_multiple_of(length) {
            return Err(format!("kubelet user assigned IDs length {ids} is not a multiple of {length}"));
        }
        let (number, count) = (first / length, ids / length);
        if count < pods {
            return Err(format!("kubelet user assigned IDs are not enough to support {pods} pods"));
        }
        // No id is above 32 bits, whatever was given.
        let end = number.saturating_add(count).min(all(length));
        Ok(Self { length, numbers: number..end })
    }

    pub(super) fn numbers(&self) -> Range<u32> {
        self.numbers.clone()
    }

    pub(super) fn range(&self, number: u32) -> IdRange {
        IdRange { host_id: number.saturating_mul(self.length), length: self.length }
    }

    /// The number of a range that somebody wrote down.
    pub(super) fn number(&self, range: IdRange) -> Result<u32, String> {
        let IdRange { host_id, length } = range;
        if length != self.length {
            return Err(format!("wrong user namespace length {length}"));
        }
        if !host_id.is_multiple_of(length) {
            return Err(format!("wrong user namespace offset specified {host_id}"));
        }
        let number = host_id / length;
        match self.numbers.contains(&number) {
            true => Ok(number),
            false => Err(format!("id {host_id} is out of range")),
        }
    }
}

/// How many ranges 32 bits have room for.
fn all(length: u32) -> u32 {
    u32::try_from((1_u64 << 32) / u64::from(length)).unwrap_or(u32::MAX)
}

/// What the administrator gave to a user, as the program `getsubids` answers: one row of ids, the same for users and
/// groups.
pub fn given_to(user: &str, getsubids: impl Fn(&[&str]) -> Result<String, String>) -> Result<Given, String> {
    let uids = getsubids(&[user])
        .map_err(|why| format!("error retrieving additional uids for user {user:?}: {why}"))?;
    let gids = getsubids(&["-g", user])
        .map_err(|_| format!("error retrieving additional gids for user {user:?}"))?;
    if uids != gids {
        return Err(format!("mismatched subuids and subgids for user {user:?}"));
    }
    parse(&uids)
}

/// `0: kubelet 65536 7208960`
fn parse(answer: &str) -> Result<Given, String> {
    let line = answer.trim_matches('\n');
    if line.contains('\n') {
        return Err(format!("error parsing line {answer:?}: it must contain only one line"));
    }
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, _, first, length] = fields[..] else {
        return Err(format!("invalid line {answer:?}"));
    };
    let number = |text: &str| {
        let refused = |error: ParseIntError| {
            let why = match error.kind() {
                IntErrorKind::PosOverflow => "value out of range",
                _ => "invalid syntax",
            };
            format!("error parsing line {answer:?}: strconv.ParseUint: parsing {text:?}: {why}")
        };
        text.parse::<u32>().map_err(refused)
    };
    Ok(Given { first: number(first)?, length: number(length)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "0: kubelet 65536 7208960\n";

    fn answered(uids: Result<&str, &str>, gids: Result<&str, &str>) -> Result<Given, String> {
        given_to("kubelet", |args| {
            let answer = match args {
                ["kubelet"] => uids,
                ["-g", "kubelet"] => gids,
                _ => panic!("nobody asks {args:?}"),
            };
            answer.map(str::to_owned).map_err(str::to_owned)
        })
    }

    #[test]
    fn users_and_groups_must_be_given_the_same() {
        assert_eq!(answered(Ok(LINE), Ok(LINE)), Ok(Given { first: 65536, length: 7_208_960 }));
        assert_eq!(
            answered(Ok(LINE), Ok("0: kubelet 131072 7208960\n")).unwrap_err(),
            "mismatched subuids and subgids for user \"kubelet\""
        );
        assert_eq!(
            answered(Err("exit status 1"), Ok(LINE)).unwrap_err(),
            "error retrieving additional uids for user \"kubelet\": exit status 1"
        );
        assert_eq!(
            answered(Ok(LINE), Err("exit status 1")).unwrap_err(),
            "error retrieving additional gids for user \"kubelet\""
        );
    }

    #[test]
    fn only_one_row_is_understood() {
        let refused = |answer: &str| answered(Ok(answer), Ok(answer)).unwrap_err();
        let two = "0: kubelet 65536 65536\n1: kubelet 200000 65536\n";
        assert_eq!(refused(two), format!("error parsing line {two:?}: it must contain only one line"));
        assert_eq!(refused(""), "invalid line \"\"");
        assert_eq!(refused("0: kubelet 65536\n"), "invalid line \"0: kubelet 65536\\n\"");
        for (odd, why) in [
            ("0: kubelet x 65536", "parsing \"x\": invalid syntax"),
            ("0: kubelet 65536 4294967296", "parsing \"4294967296\": value out of range"),
        ] {
            assert_eq!(refused(odd), format!("error parsing line {odd:?}: strconv.ParseUint: {why}"));
        }
    }

    #[test]
    fn what_is_given_must_fit() {
        let ranges = |first, length| Ranges::new(0, Some(Given { first, length }), 110);
        let enough = 110 * 65536;
        let fits = ranges(65536 * 3, enough).unwrap();
        assert_eq!((fits.numbers(), fits.range(3).host_id), (3..113, 196_608));
        for (first, length, why) in [
            (100_000, enough, "kubelet user assigned ID 100000 is not a multiple of 65536"),
            (0, enough, "kubelet user assigned ID 0 must be greater or equal to 65536"),
            (65536, enough + 1, "kubelet user assigned IDs length 7208961 is not a multiple of 65536"),
            (65536, enough - 65536, "kubelet user assigned IDs are not enough to support 110 pods"),
        ] {
            assert_eq!(ranges(first, length).unwrap_err(), why);
        }
        let beyond = ranges(65536 * 65500, enough).unwrap();
        assert_eq!(beyond.numbers(), 65500..65536);
    }

    #[test]
    fn by_default_all_but_the_lowest_are_there() {
        assert_eq!(Ranges::new(0, None, 110), Ok(Ranges::default()));
        let long = Ranges::new(131_072, None, 110).unwrap();
        assert_eq!(long.numbers(), 1..32768);
        assert_eq!(long.range(1), IdRange { host_id: 131_072, length: 131_072 });
    }

    #[test]
    fn a_range_that_was_written_down_must_be_one_of_them() {
        let ranges = Ranges::new(0, Some(Given { first: 131_072, length: 131_072 }), 2).unwrap();
        let number = |host_id, length| ranges.number(IdRange { host_id, length });
        assert_eq!(number(196_608, 65536), Ok(3));
        for (host_id, length, why) in [
            (131_072, 131_072, "wrong user namespace length 131072"),
            (131_073, 65536, "wrong user namespace offset specified 131073"),
            (0, 65536, "id 0 is out of range"),
            (65536, 65536, "id 65536 is out of range"),
            (262_144, 65536, "id 262144 is out of range"),
        ] {
            assert_eq!(number(host_id, length).unwrap_err(), why);
        }
    }
}
