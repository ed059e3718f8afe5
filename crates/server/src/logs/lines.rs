//! From the bytes of a CRI log file to the bytes that were asked for.
//!
//! A line is `<time> <stdout|stderr> <tags> <text>`. The first tag is `P` for a part of a longer line, whose newline is not
//! the container's own and is left out, or `F`. Text is passed on as it comes: no line is ever kept as a whole.

use std::ops::ControlFlow;

use jiff::Timestamp;

use super::options::LogStream;

/// Far more than a time, a stream and tags take.
const LONGEST_HEAD: usize = 256;

/// The file is not a CRI log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotALog;

/// What is wanted of the lines.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    pub since: Option<Timestamp>,
    pub timestamps: bool,
    pub stream: LogStream,
    /// So many lines of the file, if not all. Parts count.
    pub lines: Option<u64>,
    /// So many bytes of output.
    pub bytes: Option<u64>,
}

pub struct Lines {
    wanted: Wanted,
    place: Place,
    /// Whether the next text begins a line of the container's.
    fresh: bool,
    /// Whether a line was understood yet: until then the file may be something else.
    understood: bool,
}

/// Where in a line the last bytes ended.
enum Place {
    Head(Vec<u8>),
    Text {
        shown: bool,
        partial: bool,
        empty: bool,
    },
    /// In a line that is not understood.
    Nonsense,
}

impl Lines {
    pub fn new(wanted: Wanted) -> Self {
        Self { wanted, place: Place::Head(Vec::new()), fresh: true, understood: false }
    }

    /// Takes the next bytes of the file and appends what is wanted of them. `Break`: that was all that was asked for.
    pub fn feed(&mut self, mut input: &[u8], output: &mut Vec<u8>) -> Result<ControlFlow<()>, NotALog> {
        if self.is_done() {
            return Ok(ControlFlow::Break(()));
        }
        while !input.is_empty() {
            let end = input.iter().position(|byte| *byte == b'\n');
            let used = match &mut self.place {
                Place::Head(_) => self.take_head(input, output)?,
                Place::Text { .. } => {
                    let text = end.map_or(input, |end| &input[..=end]);
                    self.take_text(text, output);
                    text.len()
                }
                Place::Nonsense => match end {
                    Some(end) => {
                        self.place = Place::Head(Vec::new());
                        end + 1
                    }
                    None => input.len(),
                },
            };
            input = &input[used..];
            if self.is_done() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The file has ended for good, or another one begins.
    pub fn end_of_file(&mut self) -> Result<(), NotALog> {
        let place = std::mem::replace(&mut self.place, Place::Head(Vec::new()));
        match place {
            Place::Head(head) if !head.is_empty() && !self.understood => Err(NotALog),
            Place::Text { .. } => {
                self.fresh = false;
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn is_done(&self) -> bool {
        self.wanted.lines == Some(0) || self.wanted.bytes == Some(0)
    }

    /// Bytes up to the third space.
    fn take_head(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<usize, NotALog> {
        let Place::Head(head) = &mut self.place else { return Ok(0) };
        let mut spaces = head.iter().filter(|byte| **byte == b' ').count();
        for (index, byte) in input.iter().enumerate() {
            if *byte == b'\n' || head.len() == LONGEST_HEAD {
                // The newline is left to be found again.
                return self.nonsense().map(|()| index);
            }
            head.push(*byte);
            spaces += usize::from(*byte == b' ');
            if spaces == 3 {
                let head = std::mem::take(head);
                match Head::parse(&head) {
                    Some(head) => self.begin_text(&head, output),
                    None => self.nonsense()?,
                }
                return Ok(index + 1);
            }
        }
        Ok(input.len())
    }

    fn nonsense(&mut self) -> Result<(), NotALog> {
        self.place = Place::Nonsense;
        if self.understood { Ok(()) } else { Err(NotALog) }
    }

    fn begin_text(&mut self, head: &Head<'_>, output: &mut Vec<u8>) {
        self.understood = true;
        let streams_match = match self.wanted.stream {
            LogStream::All => true,
            LogStream::Stdout => head.stdout,
            LogStream::Stderr => !head.stdout,
        };
        let shown = streams_match && self.wanted.since.is_none_or(|since| head.time >= since);
        if shown && self.wanted.timestamps && self.fresh {
            let mut prefix = fixed_width(head.time_text);
            prefix.push(' ');
            self.write(prefix.as_bytes(), output);
        }
        self.place = Place::Text { shown, partial: head.partial, empty: true };
    }

    /// A piece of a line's text; ends with a newline exactly if the line does.
    fn take_text(&mut self, text: &[u8], output: &mut Vec<u8>) {
        let Place::Text { shown, partial, empty } = self.place else { return };
        let (content, ends) = match text.strip_suffix(b"\n") {
            Some(rest) if partial => (rest, true),
            Some(_) => (text, true),
            None => (text, false),
        };
        if shown {
            self.write(content, output);
        }
        let empty = empty && content.is_empty();
        if ends {
            // Upstream takes a part without text for an end, too.
            self.fresh = !partial || empty;
            self.wanted.lines = self.wanted.lines.map(|lines| lines.saturating_sub(1));
            self.place = Place::Head(Vec::new());
        } else {
            self.place = Place::Text { shown, partial, empty };
        }
    }

    fn write(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        let bytes = match &mut self.wanted.bytes {
            Some(left) => {
                let cut = bytes.len().min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= cut as u64;
                &bytes[..cut]
            }
            None => bytes,
        };
        output.extend_from_slice(bytes);
    }
}

struct Head<'a> {
    time: Timestamp,
    time_text: &'a str,
    stdout: bool,
    partial: bool,
}

impl<'a> Head<'a> {
    /// `head` ends with the third space.
    fn parse(head: &'a [u8]) -> Option<Self> {
        let mut parts = std::str::from_utf8(head).ok()?.split(' ');
        let (time_text, stream, tags) = (parts.next()?, parts.next()?, parts.next()?);
        let stdout = match stream {
            "stdout" => true,
            "stderr" => false,
            _ => return None,
        };
        let partial = tags.split(':').next() == Some("P");
        Some(Self { time: time_text.parse().ok()?, time_text, stdout, partial })
    }
}

/// The time as it is in the file, in its own zone, with nine digits after the point.
fn fixed_width(time: &str) -> String {
    let zone = time.rfind(['Z', 'z', '+', '-']).unwrap_or(time.len());
    let (clock, zone) = time.split_at(zone);
    let (seconds, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let zone = if matches!(zone, "+00:00" | "z") { "Z" } else { zone };
    format!("{seconds}.{fraction:0<9.9}{zone}")
}

#[cfg(test)]
mod tests;
