use std::io::Write;
use std::sync::Arc;

use tracing::{debug, error, info, info_span, warn};

use super::*;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// What is logged, with headers cut down to severity and file.
fn logged(verbosity: u32, say: impl FnOnce()) -> String {
    let memory = Memory::default();
    let writer = memory.clone();
    tracing::subscriber::with_default(subscriber(verbosity, move || writer.clone()), say);
    let bytes = memory.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let text = String::from_utf8(bytes).expect("UTF-8");
    text.lines().map(|line| short(line) + "\n").collect()
}

/// `I1115 04:19:13.123456    4711 tests.rs:42] "x"` becomes `I tests.rs] "x"`.
fn short(line: &str) -> String {
    let Some((header, payload)) = line.split_once("] ") else { return line.to_owned() };
    let parts: Vec<_> = header.split_whitespace().collect();
    let [date, time, pid, place] = parts.as_slice() else { panic!("a header of four parts: {line}") };
    assert!(date.len() == 5 && date[1..].bytes().all(|c| c.is_ascii_digit()), "{line}");
    assert!(time.len() == 15 && time.as_bytes()[8] == b'.', "{line}");
    assert_eq!(*pid, std::process::id().to_string());
    assert_eq!(
        header.find(time).map(|at| at + 16 + 7),
        header.find(place).map(|at| at - 1),
        "pid column: {line}"
    );
    format!("{} {}] {payload}", &date[..1], place.split(':').next().unwrap_or_default())
}

#[test]
fn lines_look_as_klogs_do() {
    let cause = io::Error::other("no such thing");
    let error: &dyn std::error::Error = &cause;
    let text = logged(0, || {
        info!(pod = %"default/web", count = 3, ready = true, share = 0.5, "Started");
        warn!(path = ?std::path::Path::new("/a b"), error, "It failed");
        error!(name = "tab\tquote\" backslash\\ bell\u{7}", "Odd \"value\"");
        info!(output = "first\nI1115 forged", "Many lines");
        info!(name: "named", target: "crablet::other", "no fields {}", 1 + 1);
    });
    assert_eq!(
        text,
        concat!(
            "I tests.rs] \"Started\" pod=\"default/web\" count=3 ready=true share=0.5\n",
            "W tests.rs] \"It failed\" err=\"no such thing\" path=\"/a b\"\n",
            "E tests.rs] \"Odd \\\"value\\\"\" name=\"tab\\tquote\\\" backslash\\\\ bell\\x07\"\n",
            "I tests.rs] \"Many lines\" output=<\n\tfirst\n\tI1115 forged\n >\n",
            "I tests.rs] \"no fields 2\"\n",
        )
    );
}

#[test]
fn events_carry_the_fields_of_the_spans_around_them() {
    let text = logged(0, || info_span!("turn", pod = "default/web").in_scope(|| info!(step = 1, "Inside")));
    assert_eq!(text, "I tests.rs] \"Inside\" step=1 pod=\"default/web\"\n");
}

#[test]
fn what_a_developer_reads_needs_verbosity_and_libraries_are_quiet() {
    let say = || {
        debug!("for developers");
        info!(target: "h2::client", "from a library");
        warn!(target: "h2::client", "a library's warning");
    };
    assert_eq!(logged(3, say), "W tests.rs] \"a library's warning\"\n");
    assert_eq!(logged(4, say), "I tests.rs] \"for developers\"\nW tests.rs] \"a library's warning\"\n");
    assert!(logged(8, say).contains("from a library"));
}

#[test]
fn a_line_that_was_just_said_is_not_printed_again() {
    let text = logged(0, || {
        for _ in 0..100 {
            warn!(pod = "default/web", "Back-off");
        }
        warn!(pod = "default/other", "Back-off");
    });
    assert_eq!(text.lines().count(), 2, "{text}");
}
