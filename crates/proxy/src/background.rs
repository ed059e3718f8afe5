//! Threads of its own for a proxy, for tests that know nothing of async.

use std::sync::mpsc;
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::{Error, Result};

/// A future that runs until this is dropped, and is gone when the drop is over.
pub struct Background {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    /// `begin` runs within the new runtime; what it hands back is there when this returns.
    pub fn start<T, F>(
        name: &str,
        begin: impl FnOnce() -> Result<(T, F)> + Send + 'static,
    ) -> Result<(Background, T)>
    where
        T: Send + 'static,
        F: Future<Output = ()>,
    {
        let (stop, stopped) = oneshot::channel();
        let (began, begun) = mpsc::channel();
        let body = move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
            let runtime = match runtime {
                Ok(runtime) => runtime,
                Err(error) => return drop(began.send(Err(Error::Threads(error)))),
            };
            runtime.block_on(async move {
                match begin() {
                    Err(error) => drop(began.send(Err(error))),
                    Ok((handles, work)) => {
                        if began.send(Ok(handles)).is_ok() {
                            // An error is as good as a word: the owner is gone.
                            tokio::select! {
                                biased;
                                _ = stopped => {}
                                () = work => {}
                            }
                        }
                    }
                }
            });
        };
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(Error::Threads)?;
        let gone = |_| Error::Threads(std::io::Error::other("the proxy's thread died"));
        let handles = begun.recv().map_err(gone)??;
        Ok((Background { stop: Some(stop), thread: Some(thread) }, handles))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there has printed itself.
            let _ = thread.join();
        }
    }
}
