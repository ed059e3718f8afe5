use super::*;
use proptest::prelude::*;

const LOG: &str = "\
2024-01-01T00:00:01Z stdout F one
2024-01-01T00:00:02.5Z stderr P tw
2024-01-01T00:00:03.123456789+02:00 stderr P o
2024-01-01T00:00:04.000000001+00:00 stderr F :future!
nonsense
2024-01-01T00:00:05Z stdin F not a stream
2024-01-01T00:00:06Z stdout F
2024-01-01T00:00:07Z stdout F \n2024-01-01T00:00:08Z stdout F:tag last  \n";

/// The output for a log that comes in pieces of `piece` bytes.
fn shown(log: &str, wanted: Wanted, piece: usize) -> Result<String, NotALog> {
    let mut lines = Lines::new(wanted);
    let mut output = Vec::new();
    for bytes in log.as_bytes().chunks(piece) {
        if lines.feed(bytes, &mut output)?.is_break() {
            return Ok(String::from_utf8(output).expect("UTF-8"));
        }
    }
    lines.end_of_file()?;
    Ok(String::from_utf8(output).expect("UTF-8"))
}

fn check(log: &str, wanted: &Wanted, expected: Result<&str, NotALog>) {
    for piece in [1, 2, 7, 64, usize::MAX] {
        assert_eq!(
            shown(log, wanted.clone(), piece),
            expected.map(str::to_owned),
            "{wanted:?} in pieces of {piece}"
        );
    }
}

#[test]
fn lines_are_shown_as_upstream_shows_them() {
    let all = Wanted::default();
    check(LOG, &all, Ok("one\ntwo:future!\n\nlast  \n"));
    let timestamps = Wanted { timestamps: true, ..all.clone() };
    check(
        LOG,
        &timestamps,
        Ok("2024-01-01T00:00:01.000000000Z one\n2024-01-01T00:00:02.500000000Z two:future!\n\
            2024-01-01T00:00:07.000000000Z \n2024-01-01T00:00:08.000000000Z last  \n"),
    );
    let since = Some("2024-01-01T00:00:02.5Z".parse().expect("a time"));
    // The second part is two hours earlier in truth.
    check(LOG, &Wanted { since, ..all.clone() }, Ok("tw:future!\n\nlast  \n"));
    check(LOG, &Wanted { stream: LogStream::Stdout, ..all.clone() }, Ok("one\n\nlast  \n"));
    check(LOG, &Wanted { stream: LogStream::Stderr, ..all.clone() }, Ok("two:future!\n"));
    check(LOG, &Wanted { lines: Some(2), ..all.clone() }, Ok("one\ntw"));
    check(LOG, &Wanted { lines: Some(0), ..all.clone() }, Ok(""));
    check(LOG, &Wanted { bytes: Some(6), ..all.clone() }, Ok("one\ntw"));
    check(LOG, &Wanted { bytes: Some(3), timestamps: true, ..all.clone() }, Ok("202"));
}

#[test]
fn zones_are_kept_and_times_have_nine_digits() {
    for (time, expected) in [
        ("2024-01-01T00:00:01Z", "2024-01-01T00:00:01.000000000Z"),
        ("2024-01-01T00:00:01.1-05:30", "2024-01-01T00:00:01.100000000-05:30"),
        ("2024-01-01T00:00:01.123456789+00:00", "2024-01-01T00:00:01.123456789Z"),
    ] {
        assert_eq!(fixed_width(time), expected);
    }
}

#[test]
fn what_is_no_log_is_refused_and_an_unfinished_line_is_shown() {
    let all = Wanted::default();
    check("root:x:0:0:root:/root:/bin/sh\n", &all, Err(NotALog));
    check(&"x".repeat(100_000), &all, Err(NotALog));
    check("2024-01-01T00:00:01Z", &all, Err(NotALog));
    check("", &all, Ok(""));
    check("2024-01-01T00:00:01Z stdout F unfin", &all, Ok("unfin"));
    check("2024-01-01T00:00:01Z stdout F a\n2024-01-01T00:00:02Z std", &all, Ok("a\n"));
}

proptest! {
    #[test]
    fn nothing_is_kept_and_pieces_do_not_matter(log in "([0-9TZ:. -]{0,12}(stdout|stderr) [PF] .{0,10}\n?){0,8}", piece in 1usize..50) {
        let log = format!("2024-01-01T00:00:01Z stdout F a\n{log}");
        prop_assert_eq!(shown(&log, Wanted::default(), piece), shown(&log, Wanted::default(), usize::MAX));
    }
}
