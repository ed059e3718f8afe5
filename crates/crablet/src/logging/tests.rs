use std::io::{self, Write};

use crablet_config::LogStreams;
use serde_json::Value;
use tracing::{debug, error, info, info_span, warn};

use super::*;

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn text(&self) -> String {
        let bytes = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        String::from_utf8(bytes).expect("UTF-8")
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn settings(format: LogFormat, verbosity: u32) -> Logging {
    Logging {
        format,
        verbosity,
        vmodule: Vec::new(),
        flush_frequency: std::time::Duration::from_secs(5),
        text: LogStreams::default(),
        json: LogStreams::default(),
    }
}

/// What is written to stdout and to stderr.
fn written(logging: &Logging, say: impl FnOnce(&Control)) -> (String, String) {
    let (info, errors) = (Memory::default(), Memory::default());
    let streams =
        Streams::new(logging.streams(), logging.format, Box::new(info.clone()), Box::new(errors.clone()));
    let (subscriber, control) = subscriber(logging, Arc::new(streams));
    tracing::subscriber::with_default(subscriber, || say(&control));
    (info.text(), errors.text())
}

/// What is logged, with headers cut down to severity and file.
fn logged(verbosity: u32, say: impl FnOnce()) -> String {
    let (_, text) = written(&settings(LogFormat::Text, verbosity), |_| say());
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
            "E tests.rs] \"Odd \\\"value\\\"\" name=\"tab\\tquote\\\" backslash\\\\ bell\\a\"\n",
            "I tests.rs] \"Many lines\" output=<\n\tfirst\n\tI1115 forged\n >\n",
            "I tests.rs] \"no fields 2\"\n",
        )
    );
}

#[test]
fn events_carry_the_fields_of_the_spans_around_them() {
    let text = logged(0, || info_span!("turn", pod = "default/web").in_scope(|| info!(step = 1, "Inside")));
    assert_eq!(text, "I tests.rs] \"Inside\" pod=\"default/web\" step=1\n");
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

#[test]
fn the_innermost_of_two_equal_fields_counts() {
    let text =
        logged(0, || info_span!("turn", pod = "default/a").in_scope(|| info!(pod = "default/b", "Inside")));
    assert_eq!(text, "I tests.rs] \"Inside\" pod=\"default/b\"\n");
}

#[test]
fn json_lines_have_upstreams_keys_in_upstreams_order() {
    let (_, text) = written(&settings(LogFormat::Json, 4), |_| {
        info!(pod = "default/web", podUID = "1-2", count = 3, ready = true, share = 0.5, "Started \"it\"");
        debug!(text = "two\nlines", "Detail");
        warn!(error = "why", path = "/a/b", "Odd");
        error!(error = "why", pod = "default/web", "Broken");
    });
    let lines: Vec<&str> = text.lines().collect();
    let rests = [
        r#""msg":"Started \"it\"","v":0,"pod":{"name":"web","namespace":"default"},"podUID":"1-2","count":3,"ready":true,"share":0.5}"#,
        r#""msg":"Detail","v":4,"text":"two\nlines"}"#,
        r#""msg":"Odd","v":0,"err":"why","path":"/a/b"}"#,
        r#""msg":"Broken","pod":{"name":"web","namespace":"default"},"err":"why"}"#,
    ];
    assert_eq!(lines.len(), rests.len(), "{text}");
    for (line, rest) in lines.iter().zip(rests) {
        assert!(line.starts_with("{\"ts\":") && line.ends_with(rest), "{line}\n{rest}");
        let value: Value = serde_json::from_str(line).expect("JSON");
        assert!(value["ts"].as_f64().is_some_and(|ts| ts > 1.7e12), "milliseconds: {line}");
        let caller = value["caller"].as_str().unwrap_or_default();
        assert!(caller.starts_with("logging/tests.rs:"), "{line}");
    }
}

#[test]
fn levels_can_change_while_it_runs() {
    let mut logging = settings(LogFormat::Text, 0);
    let (_, text) = written(&logging.clone(), |control| {
        let say = |step: u32| debug!(step, "detail");
        say(1);
        logging.verbosity = 4;
        control.set_levels(&logging);
        say(2);
        logging.verbosity = 0;
        logging.vmodule = vec![("test?".to_owned(), 5)];
        control.set_levels(&logging);
        say(3);
        logging.vmodule = vec![("other".to_owned(), 5)];
        control.set_levels(&logging);
        say(4);
    });
    let steps: Vec<_> =
        text.lines().filter_map(|line| line.split_once("step=")).map(|(_, step)| step).collect();
    assert_eq!(steps, ["2", "3"]);
}

#[test]
fn split_streams_let_information_wait_and_nothing_else() {
    let mut logging = settings(LogFormat::Text, 0);
    logging.text = LogStreams { split_stream: true, info_buffer_size: 200 };
    let (info, errors) = written(&logging, |control| {
        info!("first");
        warn!("bad");
        control.flush();
        info!("second");
        info!("{}", "x".repeat(300)); // longer than the buffer: pushes the second out and goes out itself
        info!("third");
    });
    assert!(info.contains("first") && info.contains("second") && info.contains("xxx"), "{info}");
    assert!(!info.contains("third") && !info.contains("bad"), "{info}");
    assert!(errors.contains("bad") && !errors.contains("first"), "{errors}");

    logging.format = LogFormat::Json;
    logging.json = LogStreams { split_stream: true, info_buffer_size: 0 };
    let (info, errors) = written(&logging, |_| {
        warn!("bad");
        error!("worse");
    });
    assert!(info.contains("bad"), "upstream's JSON knows no warnings: {info}");
    assert!(errors.contains("worse") && !errors.contains("\"bad\""), "{errors}");
}
