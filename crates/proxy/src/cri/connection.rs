//! One client's connection, and the one to the runtime that belongs to it alone: what happens to the one happens to the
//! other, so that both sides see what they would see without the proxy.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use tokio::net::UnixStream;
use tokio::task::JoinSet;

use super::call::{Call, Signals};
use super::{Context, LINGER};

/// Room for the biggest messages there are (16 MiB), so that the proxy does not slow them down.
const CONNECTION_WINDOW: u32 = 32 << 20;
const STREAM_WINDOW: u32 = 4 << 20;

/// Serves one client until it goes, the runtime goes, or a rule cuts it off. Dropping the future closes both connections.
pub async fn serve(context: Arc<Context>, client: UnixStream, upstream: PathBuf) {
    // A runtime that is not there: the client's connection is closed at once, which it takes for the same.
    let Ok(runtime) = UnixStream::connect(upstream).await else { return };
    let handshake = h2::client::Builder::new()
        .enable_push(false)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake::<_, Bytes>(runtime);
    let Ok((runtime, mut runtime_connection)) = handshake.await else { return };
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake::<_, Bytes>(client);
    let Ok(mut client) = handshake.await else { return };

    let signals = Arc::new(Signals::default());
    let mut calls = JoinSet::new();
    let mut runtime_is_there = true;
    loop {
        // Without the runtime, what is under way still gets what the runtime said before it went.
        let over = !runtime_is_there && calls.len() <= signals.broken.load(Ordering::SeqCst);
        // Each arm can be dropped at any time: connections keep their state, notifications are stored.
        tokio::select! {
            biased;
            () = signals.cut.notified() => return,
            () = signals.one_more_broken.notified() => {}
            () = signals.refused.notified() => client.graceful_shutdown(),
            _ = &mut runtime_connection, if runtime_is_there => {
                runtime_is_there = false;
            }
            Some(_) = calls.join_next() => {}
            accepted = client.accept() => match accepted {
                Some(Ok((request, respond))) => {
                    let (context, signals) = (Arc::clone(&context), Arc::clone(&signals));
                    let call = Call { context, signals, request, respond, runtime: runtime.clone() };
                    calls.spawn(Box::pin(call.run()));
                }
                Some(Err(_)) | None => return,
            },
            () = tokio::time::sleep(LINGER), if over => return,
        }
    }
}
