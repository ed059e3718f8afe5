//! Whatever bytes come, in whatever parts, the decoders neither panic nor care about the parts.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use crate::streaming::spdy::{self, Frame};
use crate::streaming::websocket::{self, Event, Kind};

/// Written by Go's `spdystream`, frame by frame.
const FROM_GO: [(&str, &str); 11] = [
    ("80030002000000140000000178f9e3c6a7c26260606000000000ffff", "Reply { stream: 1, last: false }"),
    ("800300020100001900000003626060600425be0a5d50f2664e624806000000ffff", "Reply { stream: 3, last: true }"),
    ("000000050000000568656c6c6f", r#"Data { stream: 5, last: false, bytes: b"hello" }"#),
    ("800300060000000400000002", "Ping { id: 2 }"),
    ("800300040000000c000000010000000700010000", "Other"),
    ("80030009000000080000000500000064", "Other"),
    ("800300080000001000000005428880d231632a000000ffff", "Other"),
    ("80030001000000200000000200000000000082f2b98a4b8a521373a1050e6b2a283a00000000ffff", "Other"),
    (
        "00000001010000147b22737461747573223a2253756363657373227d",
        r#"Data { stream: 1, last: true, bytes: b"{\"status\":\"Success\"}" }"#,
    ),
    ("80030003000000080000000500000005", "Reset { stream: 5 }"),
    ("80030007000000080000000900000000", "GoAway"),
];

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().map(|digit| digit.to_digit(16).expect("a digit") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] * 16 + pair[1]).collect()
}

/// Decodes in parts of these lengths, over and over. Blocks of one stream or message are put together.
fn spdy_frames(bytes: &[u8], parts: &[usize]) -> (Vec<Frame>, bool) {
    let (mut decoder, mut buffer) = (spdy::Decoder::default(), BytesMut::new());
    let mut frames: Vec<Frame> = Vec::new();
    let mut open = false;
    for part in cut(bytes, parts) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => {
                    open = true;
                    break;
                }
            }
        }
        if open {
            break;
        }
    }
    (frames, open)
}

fn websocket_events(bytes: &[u8], parts: &[usize]) -> (Vec<Event>, bool) {
    let (mut decoder, mut buffer) = (websocket::Decoder::default(), BytesMut::new());
    let mut events = Vec::new();
    for part in cut(bytes, parts) {
        buffer.extend_from_slice(part);
        loop {
            match decoder.next(&mut buffer) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(_) => return (events, true),
            }
        }
    }
    (events, false)
}

fn cut<'a>(mut bytes: &'a [u8], parts: &[usize]) -> Vec<&'a [u8]> {
    let mut cut = Vec::new();
    for length in parts.iter().cycle() {
        if bytes.is_empty() {
            break;
        }
        let (part, rest) = bytes.split_at((*length).clamp(1, bytes.len()));
        cut.push(part);
        bytes = rest;
    }
    cut
}

/// The same without a trace of how it was cut.
fn joined_frames(frames: Vec<Frame>) -> Vec<Frame> {
    let mut joined: Vec<Frame> = Vec::new();
    for frame in frames {
        match (joined.last_mut(), frame) {
            (
                Some(Frame::Data { stream: before, last: ended, bytes: so_far }),
                Frame::Data { stream, last, bytes },
            ) if *before == stream && !*ended => {
                *so_far = Bytes::from([&so_far[..], &bytes].concat());
                *ended = last;
            }
            (_, frame) => joined.push(frame),
        }
    }
    joined
}

fn joined_events(events: Vec<Event>) -> Vec<Event> {
    let mut joined: Vec<Event> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (
                Some(Event::Data { last: ended, bytes: so_far, .. }),
                Event::Data { first: false, last, bytes, .. },
            ) if !*ended => {
                *so_far = Bytes::from([&so_far[..], &bytes].concat());
                *ended = last;
            }
            (_, event) => joined.push(event),
        }
    }
    joined
}

#[test]
fn frames_of_gos_spdystream_are_understood() {
    for (bytes, expected) in FROM_GO {
        let (frames, bad) = spdy_frames(&hex(bytes), &[usize::MAX]);
        assert_eq!((format!("{:?}", frames[0]).as_str(), frames.len(), bad), (expected, 1, false));
    }
    let all: Vec<u8> = FROM_GO.iter().flat_map(|(bytes, _)| hex(bytes)).collect();
    let whole = spdy_frames(&all, &[usize::MAX]).0;
    assert_eq!(whole.len(), FROM_GO.len());
    assert_eq!(joined_frames(spdy_frames(&all, &[1]).0), whole);
}

#[test]
fn streams_are_opened_with_bytes_that_gos_spdystream_understands() {
    // Read by Go's `spdystream` when this was written: five streams with these kinds.
    let opened = spdy::open_streams("streamtype", &["error", "stdin"]);
    let expected = "80030001000000350000000100000000000\
                    07820e3c6a7c2001b00e4ff000000010000000a73747265616d74797065000000056572726f72000000ffff\
                    800300010000002f0000000300000000000\
                    0001b00e4ff000000010000000a73747265616d7479706500000005737464696e000000ffff";
    assert_eq!(opened, hex(expected));
}

#[test]
fn frames_that_are_wrong_are_errors() {
    for bytes in [
        "0000000000000001ff",
        "80020006000000040000000a",
        "8003000a00000004000000010000",
        "80030006000000050000000101",
        "800300030000000400000001",
        "800300020000000400000000",
        "800300020000000300000001",
    ] {
        assert!(spdy_frames(&hex(bytes), &[usize::MAX]).1, "{bytes}");
    }
    for bytes in ["8200", "c280", "8080", "0980", "89fe0080", "028001028001", "838000000000", "8b8000000000"]
    {
        let bytes = [hex(bytes), vec![0; 16]].concat();
        assert!(websocket_events(&bytes, &[usize::MAX]).1, "{bytes:x?}");
    }
}

#[test]
fn a_masked_message_is_unmasked_across_blocks() {
    let mask = [1, 2, 3, 4];
    let text = b"a message that is longer than its mask";
    let masked = text.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask);
    let frame: Vec<u8> = [0x82, 0x80 | text.len() as u8].into_iter().chain(mask).chain(masked).collect();
    for part in [1, 2, 3, 5, 7, 100] {
        let events = joined_events(websocket_events(&frame, &[part]).0);
        let expected =
            Event::Data { kind: Kind::Binary, first: true, last: true, bytes: text.as_slice().into() };
        assert_eq!(events, [expected]);
    }
}

/// Bytes that look like frames often enough to get past their heads.
fn spdy_like() -> impl Strategy<Value = Vec<u8>> {
    let payload = || prop::collection::vec(any::<u8>(), 0..40);
    let control = (1u16..12, any::<u8>(), payload()).prop_map(|(kind, flags, payload)| {
        let length = payload.len() as u32 | u32::from(flags) << 24;
        [&[0x80, 3][..], &kind.to_be_bytes(), &length.to_be_bytes(), &payload].concat()
    });
    let data = (0u32..8, any::<u8>(), payload()).prop_map(|(stream, flags, payload)| {
        let length = payload.len() as u32 | u32::from(flags) << 24;
        [&stream.to_be_bytes()[..], &length.to_be_bytes(), &payload].concat()
    });
    let junk = prop::collection::vec(any::<u8>(), 0..20);
    prop::collection::vec(prop_oneof![4 => control, 4 => data, 1 => junk], 0..12)
        .prop_map(|frames| frames.concat())
}

fn websocket_like() -> impl Strategy<Value = Vec<u8>> {
    let frame = (any::<bool>(), 0u8..12, any::<[u8; 4]>(), prop::collection::vec(any::<u8>(), 0..120));
    let frame = frame.prop_map(|(fin, opcode, mask, payload)| {
        let head = [u8::from(fin) << 7 | opcode, 0x80 | payload.len() as u8];
        [&head[..], &mask, &payload].concat()
    });
    let junk = prop::collection::vec(any::<u8>(), 0..20);
    prop::collection::vec(prop_oneof![8 => frame, 1 => junk], 0..12).prop_map(|frames| frames.concat())
}

proptest! {
    #[test]
    fn spdy_does_not_depend_on_how_it_is_cut(
        bytes in spdy_like(),
        parts in prop::collection::vec(1usize..30, 1..8),
    ) {
        let (whole, in_parts) = (spdy_frames(&bytes, &[usize::MAX]), spdy_frames(&bytes, &parts));
        prop_assert_eq!(joined_frames(whole.0), joined_frames(in_parts.0));
        prop_assert_eq!(whole.1, in_parts.1);
    }

    #[test]
    fn websocket_does_not_depend_on_how_it_is_cut(
        bytes in websocket_like(),
        parts in prop::collection::vec(1usize..30, 1..8),
    ) {
        let (whole, in_parts) = (websocket_events(&bytes, &[usize::MAX]), websocket_events(&bytes, &parts));
        prop_assert_eq!(joined_events(whole.0), joined_events(in_parts.0));
        prop_assert_eq!(whole.1, in_parts.1);
    }
}
