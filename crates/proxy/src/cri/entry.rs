//! The record of one CRI call, from its arrival to its end.

use std::time::Instant;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};

use super::decode::{Decoder, Limits};
use super::framing::Frame;
use super::schema::Schema;
use crate::record::{Outcome, Phase, Recorded, Recorder};

/// A line of the record. A call with one answer is one line; a stream of answers is a line when it begins, one for each
/// message, and one when it ends, all with the same `call`.
#[derive(Debug, Clone, Serialize)]
pub struct CriRecord {
    /// When the call arrived, or this message of it.
    pub time: Timestamp,
    /// The call's number, from 1, in the order of arrival.
    pub call: u64,
    pub phase: Phase,
    /// `runtime.v1.RuntimeService`.
    pub service: String,
    /// `RunPodSandbox`.
    pub method: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<Value>,
    /// The message's number in its stream, from 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<u64>,
    /// What the runtime answered, even if the client never got it. For the end of a stream: how many messages there were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<Value>,
    /// The gRPC code that the client got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<u16>,
    /// The gRPC message that the client got.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// The rule that acted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

impl Recorded for CriRecord {
    /// The method: `RunPodSandbox`.
    type Key = String;
}

/// Writes the call's line when it is finished, or when it is dropped: then the client gave up, or the proxy was stopped.
pub struct Entry<'a> {
    recorder: &'a Recorder<CriRecord>,
    limits: &'a Limits,
    line: CriRecord,
    arrived: Instant,
    /// The type of the answer's messages, if it is known.
    response_type: &'static str,
    streams: bool,
    messages: u64,
    finished: bool,
}

impl<'a> Entry<'a> {
    pub fn new(recorder: &'a Recorder<CriRecord>, limits: &'a Limits, path: &str) -> Entry<'a> {
        let (service, method) = path.trim_start_matches('/').split_once('/').unwrap_or(("", path));
        let known = Schema::cri().method(path);
        let line = CriRecord {
            time: Timestamp::now(),
            call: recorder.arrived(method.to_owned()),
            phase: Phase::Call,
            service: service.to_owned(),
            method: method.to_owned(),
            request: None,
            number: None,
            response: None,
            code: None,
            message: None,
            duration_ms: None,
            outcome: None,
            rule: None,
        };
        Entry {
            recorder,
            limits,
            line,
            arrived: Instant::now(),
            response_type: known.map_or("", |method| &method.response),
            // Of a method that nobody knows, nobody knows when it ends.
            streams: known.is_none_or(|method| method.streams),
            messages: 0,
            finished: false,
        }
    }

    /// What is asked, and the rule that acts on it.
    pub fn asked(&mut self, request_type: &str, frame: Option<&Frame>, rule: Option<String>) {
        self.line.request = frame.map(|frame| self.shown(request_type, frame));
        self.line.rule = rule;
        if self.streams {
            self.write(CriRecord { phase: Phase::Start, ..self.line.clone() });
            self.line.request = None;
        }
    }

    /// One message of the answer.
    pub fn answer(&mut self, frame: &Frame) {
        self.messages += 1;
        let shown = self.shown(self.response_type, frame);
        if self.streams {
            self.write(CriRecord {
                time: Timestamp::now(),
                phase: Phase::Message,
                number: Some(self.messages),
                response: Some(shown),
                rule: None,
                ..self.line.clone()
            });
        } else {
            self.line.response = Some(shown);
        }
    }

    pub fn finish(&mut self, outcome: Outcome, code: Option<u16>, message: Option<String>) {
        if self.finished {
            return;
        }
        self.finished = true;
        self.line.outcome = Some(outcome);
        self.line.code = code;
        self.line.message = message.filter(|message| !message.is_empty());
        self.line.duration_ms = Some(self.arrived.elapsed().as_micros() as f64 / 1000.0);
        if self.streams {
            self.line.phase = Phase::End;
            self.line.time = Timestamp::now();
            self.line.response = Some(json!({ "messages": self.messages }));
        }
        self.write(self.line.clone());
    }

    fn shown(&self, name: &str, frame: &Frame) -> Value {
        if frame.compressed {
            return json!({ "compressed": format!("{} bytes", frame.message.len()) });
        }
        Decoder::redacting(self.limits).message(name, &frame.message)
    }

    fn write(&self, line: CriRecord) {
        self.recorder.write(line);
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        self.finish(Outcome::GivenUp, None, None);
    }
}
