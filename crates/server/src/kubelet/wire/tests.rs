use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use super::*;

/// A wire, its other end, and what both sides know.
fn wire(heads: &LargeHeads) -> (Wire<DuplexStream>, DuplexStream, Arc<Meter>) {
    let place = Arc::new(Semaphore::new(1)).try_acquire_owned().expect("a place");
    let (near, far) = tokio::io::duplex(4 << 20);
    let meter = Arc::<Meter>::default();
    (Wire::http1(near, meter.clone(), heads.clone(), place), far, meter)
}

/// What HTTP gets to read of `sent`, which comes in pieces of `size`.
async fn read_of(sent: &[u8], size: usize) -> (Vec<u8>, Option<String>) {
    let (mut wire, mut far, meter) = wire(&LargeHeads::default());
    let mut read = Vec::new();
    for piece in sent.chunks(size) {
        far.write_all(piece).await.expect("a write");
    }
    drop(far);
    // In small steps, as HTTP does it.
    let mut buffer = [0; 8192];
    loop {
        match wire.read(&mut buffer).await.expect("a read") {
            0 => break,
            count => read.extend_from_slice(&buffer[..count]),
        }
    }
    let mut extensions = Extensions::new();
    meter.give_query(&mut extensions);
    let query = query_of(&Uri::from_static("/"), &extensions).to_owned();
    (read, Some(query).filter(|query| !query.is_empty()))
}

#[tokio::test]
async fn a_long_query_is_handed_on_beside_the_request() {
    let query = format!("command=sh&command=-c&command={}", "a%20b+".repeat(60_000));
    let rest = "Host: node\r\n\r\nbody";
    let long = format!("POST /exec/a/b/c?{query} HTTP/1.1\r\n{rest}");
    for size in [1 << 20, 8192, 1000] {
        let (read, found) = read_of(long.as_bytes(), size).await;
        assert_eq!(String::from_utf8(read).expect("text"), format!("POST /exec/a/b/c HTTP/1.1\r\n{rest}"));
        assert_eq!(found.as_deref(), Some(query.as_str()));
    }
}

#[tokio::test]
async fn everything_else_passes_as_it_is() {
    let long = "x".repeat(100_000);
    for sent in [
        "GET /pods?x=y HTTP/1.1\r\nHost: node\r\n\r\n".to_owned(),
        format!("GET /{long} HTTP/1.1\r\n\r\n"),
        format!("GET /pods?{long}\u{7f} HTTP/1.1\r\n\r\n"),
        format!("GET /pods?{long}"),
        format!("{long}\r\n"),
        format!("GET /pods HTTP/1.1\r\nCookie: {long}\r\n\r\n"),
        "\r\n".to_owned(),
        String::new(),
    ] {
        for size in [1 << 20, 777] {
            let (read, query) = read_of(sent.as_bytes(), size).await;
            assert!(read == sent.as_bytes(), "{} bytes of {}", read.len(), sent.len());
            assert_eq!(query, None);
        }
    }
}

#[tokio::test]
async fn only_a_few_strangers_send_long_heads_at_a_time() {
    let heads = LargeHeads::default();
    let long = vec![b'x'; 2 * SMALL_HEAD];
    let mut senders = Vec::new();
    for _ in 0..=LARGE_HEADS {
        let (wire, mut far, meter) = wire(&heads);
        far.write_all(b"GET / HTTP/1.1\r\nCookie: ").await.expect("a write");
        far.write_all(&long).await.expect("a write");
        senders.push((wire, far, meter));
    }
    let mut buffer = vec![0; SMALL_HEAD];
    for (wire, ..) in &mut senders[..LARGE_HEADS] {
        wire.read_exact(&mut buffer).await.expect("the first part");
        wire.read_exact(&mut buffer).await.expect("more");
    }
    let (mut last, _far, meter) = senders.pop().expect("one more");
    last.read_exact(&mut buffer).await.expect("the first part");
    assert!(futures_util::poll!(std::pin::pin!(last.read_exact(&mut buffer))).is_pending(), "no turn for it");

    // Whoever got an answer makes room.
    senders[0].2.answered();
    last.read_exact(&mut buffer).await.expect("more");
    // Whoever was let in is not counted.
    meter.admit();
    assert_eq!(heads.0.available_permits(), 1);
    senders[1].2.admit();
    assert_eq!(heads.0.available_permits(), 2);
}

#[tokio::test]
async fn a_connection_has_its_place_until_its_socket_is_gone() {
    struct Told(Arc<AtomicBool>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let places = Arc::new(Semaphore::new(1));
    let place = places.clone().try_acquire_owned().expect("a place");
    let (near, _far) = tokio::io::duplex(1);
    let (meter, over) = (Arc::<Meter>::default(), Arc::<AtomicBool>::default());
    let wire = Wire::http2(near, meter.clone(), place);
    meter.keep(Box::new(Told(over.clone())));
    assert_eq!((places.available_permits(), over.load(Ordering::Relaxed)), (0, false));
    drop(wire);
    assert_eq!((places.available_permits(), over.load(Ordering::Relaxed)), (1, true));
}
