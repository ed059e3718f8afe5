//! No bytes make the decoder panic, and every answer is one line.

use proptest::prelude::*;

use super::*;

fn survives(bytes: &[u8]) {
    for origin in [FILE, Origin::Url { url: "http://h/p" }] {
        if let Err(error) = decode_pods(bytes, &origin, NODE, Gates::default()) {
            let message = error.to_string();
            assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
        }
    }
}

/// Pieces of YAML that mean something here, to be put where they do not belong.
fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "\\PC{0,12}",
        Just("null".to_owned()),
        Just("{}".to_owned()),
        Just("[]".to_owned()),
        Just("- ".to_owned()),
        Just("---\n".to_owned()),
        Just("&a *a".to_owned()),
        Just("<<: *a".to_owned()),
        Just("9223372036854775808".to_owned()),
        Just("-1e999".to_owned()),
        Just("!!binary x".to_owned()),
        Just("0777".to_owned()),
        Just(".inf".to_owned()),
        Just("\n".to_owned()),
        Just("\t".to_owned()),
        Just("\u{0}".to_owned()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases.max(400)))]

    #[test]
    fn on_any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        survives(&bytes);
    }

    #[test]
    fn on_any_text(text in "\\PC{0,200}") {
        survives(text.as_bytes());
    }

    #[test]
    fn on_a_manifest_with_pieces_replaced(cuts in proptest::collection::vec((any::<prop::sample::Index>(), 0..30_usize, piece()), 1..4)) {
        let mut text: Vec<char> = include_str!("everything.yaml").chars().collect();
        for (at, length, piece) in cuts {
            let start = at.index(text.len());
            let end = (start + length).min(text.len());
            text.splice(start..end, piece.chars());
        }
        survives(text.into_iter().collect::<String>().as_bytes());
    }

    #[test]
    fn on_a_manifest_with_one_value_replaced(at: prop::sample::Index, piece in piece()) {
        let lines: Vec<&str> = include_str!("everything.yaml").lines().collect();
        let chosen = at.index(lines.len());
        let text: String = lines.iter().enumerate().map(|(index, line)| match line.split_once(": ") {
            Some((name, _)) if index == chosen => format!("{name}: {piece}\n"),
            _ => format!("{line}\n"),
        }).collect();
        survives(text.as_bytes());
    }
}

#[test]
fn on_things_made_to_hurt() {
    let deep = format!("apiVersion: v1\nkind: Pod\nspec: {}{}", "[".repeat(50_000), "]".repeat(50_000));
    let deep_json = format!("{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"spec\":{}", "{\"a\":".repeat(50_000));
    let bomb = "a: &a [x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c]\ne: &e [*d, *d, *d, *d, *d, *d, *d, *d]\nf: &f [*e, *e, *e, *e, *e, *e, *e, *e]\ng: [*f, *f, *f, *f, *f, *f, *f, *f]\n";
    let wide = format!("{MINIMAL}    env:\n{}", "    - {name: 5}\n".repeat(20_000));
    let unknown = format!("{MINIMAL}{}", (0..20_000).map(|n| format!("  x{n}: 1\n")).collect::<String>());
    let many = r#"{"apiVersion":"v1","kind":"Pod","metadata":{},"spec":{"containers":[{}"#.to_owned()
        + &",{}".repeat(1_000_000)
        + "]}}";
    for text in [&deep, &deep_json, bomb, &wide, &unknown, &many] {
        survives(text.as_bytes());
    }
    assert_eq!(
        accepted(&unknown).warnings.last().map(String::as_str),
        Some("19950 more unknown fields are ignored")
    );
}
