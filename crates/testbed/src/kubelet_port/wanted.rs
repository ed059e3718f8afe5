//! What a client asks for: the protocol, the command, the ways that are open.

use hyper::Method;

/// What a session is spoken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Spdy,
    WebSocketV4,
    /// As the fourth, and an input can be closed.
    WebSocketV5,
}

impl Protocol {
    pub const ALL: [Protocol; 3] = [Protocol::Spdy, Protocol::WebSocketV4, Protocol::WebSocketV5];

    pub fn name(self) -> &'static str {
        match self {
            Protocol::Spdy | Protocol::WebSocketV4 => "v4.channel.k8s.io",
            Protocol::WebSocketV5 => "v5.channel.k8s.io",
        }
    }

    /// The header in which both sides name it.
    pub(super) fn header(self) -> &'static str {
        match self {
            Protocol::Spdy => "x-stream-protocol-version",
            Protocol::WebSocketV4 | Protocol::WebSocketV5 => "sec-websocket-protocol",
        }
    }

    pub(super) fn upgrade(self) -> (Method, Vec<(&'static str, &'static str)>) {
        let mut headers = vec![("connection", "Upgrade"), (self.header(), self.name())];
        match self {
            Protocol::Spdy => {
                headers.push(("upgrade", "SPDY/3.1"));
                (Method::POST, headers)
            }
            Protocol::WebSocketV4 | Protocol::WebSocketV5 => {
                let key = "dGhlIHNhbXBsZSBub25jZQ==";
                headers.extend([
                    ("upgrade", "websocket"),
                    ("sec-websocket-version", "13"),
                    ("sec-websocket-key", key),
                ]);
                (Method::GET, headers)
            }
        }
    }
}

/// What a session is to be: the command (none for `attach`) and the ways that are open.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    pub command: Vec<String>,
    pub input: bool,
    pub tty: bool,
}

impl Wanted {
    pub fn command(words: &[&str]) -> Wanted {
        Wanted { command: words.iter().map(|word| (*word).to_owned()).collect(), ..Wanted::default() }
    }

    pub fn with_input(self) -> Wanted {
        Wanted { input: true, ..self }
    }

    pub(super) fn path(&self, path: &str) -> String {
        let mut query = vec!["output=1".to_owned()];
        query.extend(self.command.iter().map(|word| format!("command={}", escaped(word))));
        // With a terminal there is one way out for both.
        query.push(if self.tty { "tty=1".into() } else { "error=1".into() });
        if self.input {
            query.push("input=1".into());
        }
        format!("{path}?{}", query.join("&"))
    }

    /// The channels that the client opens, where a protocol has to open them.
    pub(super) fn channels(&self) -> impl Iterator<Item = Channel> {
        let (input, tty) = (self.input, self.tty);
        [Channel::Status, Channel::Input, Channel::Output, Channel::Error, Channel::Resize]
            .into_iter()
            .filter(move |channel| match channel {
                Channel::Status | Channel::Output => true,
                Channel::Input => input,
                Channel::Error => !tty,
                Channel::Resize => tty,
            })
    }
}

fn escaped(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// In the order of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Channel {
    Input = 0,
    Output = 1,
    Error = 2,
    Status = 3,
    Resize = 4,
}

impl Channel {
    pub(super) fn of(number: u8) -> Option<Channel> {
        [Channel::Input, Channel::Output, Channel::Error, Channel::Status, Channel::Resize]
            .into_iter()
            .find(|channel| *channel as u8 == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_put_into_the_query() {
        let wanted = Wanted::command(&["sh", "-c", "echo a b"]).with_input();
        assert_eq!(
            wanted.path("/exec/a/b/c"),
            "/exec/a/b/c?output=1&command=sh&command=-c&command=echo%20a%20b&error=1&input=1"
        );
    }
}
