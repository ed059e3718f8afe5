//! The event stream.

use std::time::Duration;

use crablet_model::PodUid;
use crablet_model::runtime::{RuntimeEvent, RuntimeEventKind};
use crablet_protos::cri as wire;
use futures_util::future::Either;
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt, future, stream};
use wire::ContainerEventType as Type;

use super::connection::Connection;
use super::replies::pod_uid;
use crate::port::{EventStream, Result};

/// How long a runtime that answers other calls may take to refuse this one.
const TIME_TO_REFUSE: Duration = Duration::from_millis(50);

/// Runtimes written in Go answer nothing at all until the first event, so waiting for the call to begin could take for
/// ever. A refusal comes at once: `probe`, some other call to the same runtime, tells when "at once" is over.
pub async fn subscribe<T>(
    connection: &Connection,
    probe: impl Future<Output = Result<T>>,
) -> Result<EventStream> {
    let fail = connection.error_maker();
    let mut services = connection.services();
    let mut begun =
        async move { services.runtime.get_container_events(wire::GetEventsRequest {}).await }.boxed();

    let settled = async {
        let probed = probe.await.map(drop);
        tokio::time::sleep(TIME_TO_REFUSE).await;
        probed
    };
    let early = match future::select(&mut begun, Box::pin(settled)).await {
        Either::Left((begun, _)) => Some(begun.map_err(|status| fail(&status))?),
        Either::Right((probed, _)) => {
            probed?;
            None
        }
    };
    let begin = async move {
        match early {
            Some(begun) => Ok(begun),
            None => begun.await,
        }
    };
    let events = stream::once(begin).map_ok(tonic::Response::into_inner).try_flatten();
    Ok(until_first_error(events.map(move |item| item.map(event).map_err(|status| fail(&status)))).boxed())
}

/// The client library repeats an error once more before it ends the stream.
fn until_first_error<T>(items: impl Stream<Item = Result<T>>) -> impl Stream<Item = Result<T>> {
    items.scan(false, |failed, item| {
        let over = std::mem::replace(failed, item.is_err());
        future::ready((!over).then_some(item))
    })
}

fn event(event: wire::ContainerEventResponse) -> RuntimeEvent {
    let uid = event.pod_sandbox_status.and_then(|sandbox| {
        let uid = pod_uid(sandbox.metadata.as_ref(), &sandbox.labels);
        (!uid.is_empty()).then(|| PodUid::new(uid))
    });
    let kind = match Type::try_from(event.container_event_type) {
        Ok(Type::ContainerCreatedEvent) => RuntimeEventKind::Created,
        Ok(Type::ContainerStartedEvent) => RuntimeEventKind::Started,
        Ok(Type::ContainerDeletedEvent) => RuntimeEventKind::Deleted,
        // A kind that is newer than this program is a hint all the same: as this one it is always looked at.
        Ok(Type::ContainerStoppedEvent) | Err(_) => RuntimeEventKind::Stopped,
    };
    RuntimeEvent { uid, container_id: event.container_id, kind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::port::{CriError, ErrorKind};

    fn from_wire(number: i32, uid: Option<&str>) -> RuntimeEvent {
        let metadata = uid.map(|uid| wire::PodSandboxMetadata { uid: uid.into(), ..Default::default() });
        event(wire::ContainerEventResponse {
            container_id: "c".into(),
            container_event_type: number,
            pod_sandbox_status: Some(wire::PodSandboxStatus { metadata, ..Default::default() }),
            ..Default::default()
        })
    }

    #[test]
    fn every_number_is_some_kind_of_event() {
        use RuntimeEventKind::*;
        for (number, kind) in
            [(0, Created), (1, Started), (2, Stopped), (3, Deleted), (77, Stopped), (-1, Stopped)]
        {
            let expected = RuntimeEvent { uid: Some(PodUid::new("u")), container_id: "c".into(), kind };
            assert_eq!(from_wire(number, Some("u")), expected, "{number}");
        }
    }

    #[tokio::test]
    async fn a_stream_ends_with_its_first_error() {
        let error = || Err(CriError::new(ErrorKind::Unavailable, "gone"));
        let got: Vec<_> =
            until_first_error(stream::iter([Ok(1), Ok(2), error(), error(), Ok(3)])).collect().await;
        assert_eq!(got, [Ok(1), Ok(2), error()]);
    }

    #[test]
    fn an_event_without_a_pod_is_about_every_pod() {
        assert_eq!(from_wire(0, None).uid, None);
        assert_eq!(from_wire(0, Some("")).uid, None);
        assert_eq!(event(wire::ContainerEventResponse::default()).uid, None);
    }
}
